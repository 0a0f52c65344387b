"""Bundles of every form, and bundles that are damaged, hostile or too new."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diag.errors import BundleError, BundleTooNew, BundleUnreadable, DiagError
from diag.model import Window
from diag.sources.bundle import BundleSource
from diag.sources.unpacking import unpacked

_DESCRIPTION = {
    "schema": "diag.bundle/1", "name": "x", "window": {"from": 1000, "to": 1060}, "step_seconds": 5,
    "incident": None, "label": None, "notes": "",
}  # fmt: skip
_NAME = "vllm:num_requests_running"
Maker = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    """Write a bundle's folder from file names and contents."""

    def build(files: dict[str, str | bytes], description: dict[str, Any] | None = None) -> Path:
        folder = tmp_path / "bundle"
        for name, content in {
            "bundle.json": json.dumps({**_DESCRIPTION, **(description or {})}),
            **files,
        }.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        return folder

    return build


def _line(values: list[Any], times: list[Any] | None = None, **labels: str) -> str:
    times = times or [1_000_000 + 5_000 * place for place in range(len(values))]
    metric = {"__name__": _NAME, "instance": "e:1", "job": "vllm", **labels}
    return json.dumps({"metric": metric, "values": values, "timestamps": times}) + "\n"


def _samples(source: BundleSource, name: str = _NAME) -> dict[float, float]:
    rows = [one for one in source.raw(Window(0, 4e9)) if one.labels["__name__"] == name]
    assert len(rows) == 1
    return dict(zip(rows[0].times.tolist(), rows[0].values.tolist(), strict=True))


def _fails(path: Path | str, kind: type[DiagError] = BundleUnreadable) -> str:
    with pytest.raises(kind) as caught:
        BundleSource(path)
    said = str(caught.value)
    assert "\n" not in said
    assert caught.value.hint
    return said


def test_all_forms_of_metrics_read_alike(make: Maker) -> None:
    om = (
        "".join(f'{_NAME}{{instance="e:1",job="vllm"}} {v} {t}\n' for t, v in ((1000, 1), (1005, 2)))
        + "# EOF\n"
    )
    folder = make({"metrics/a.jsonl": _line([1, 2])})
    expected = _samples(BundleSource(folder))
    assert expected == {1000.0: 1.0, 1005.0: 2.0}
    for name, content in {
        "metrics/a.jsonl.gz": gzip.compress(_line([1, 2]).encode()),
        "metrics/a.om": om.encode(),
        "metrics/a.om.gz": gzip.compress(om.encode()),
    }.items():
        (folder / "metrics").rename(folder / f"old{time.monotonic_ns()}")
        (folder / "metrics").mkdir()
        (folder / name).write_bytes(content)
        assert _samples(BundleSource(folder)) == expected, name


def test_pages_carry_their_time_and_target_in_their_name(make: Maker) -> None:
    folder = make(
        {
            "metrics/e:1-1700000000.prom": f"{_NAME} 3\n",
            "metrics/e:1-1700000005.5.prom.gz": gzip.compress(f"{_NAME} 4\n".encode()),
            "metrics/no-time.prom": f"{_NAME} 5\n",
        },
        {"window": None},
    )
    source = BundleSource(folder)
    assert _samples(source) == {1700000000.0: 3.0, 1700000005.5: 4.0}
    assert _samples(source, "up") == {1700000000.0: 1.0, 1700000005.5: 1.0}
    assert source.extent() == Window(1700000000.0, 1700000005.5)
    notes = source.fetch(["running_requests"], _grid()).notes
    assert any("no-time.prom" in note for note in notes)


def _grid() -> Any:
    from diag.signals.frame import Grid

    return Grid(1000.0, 1060.0, 5.0, 20.0)


def test_odd_numbers_duplicates_and_disorder(make: Maker) -> None:
    lines = (
        _line([1, None, "NaN", "Infinity", "-Inf"])
        + _line([7, 8], [1_030_000, 1_025_000])
        + _line([9], [1_030_000])
        + _line([float("nan"), 5], [1_035_000, 1_040_000])
    )  # fmt: skip
    found = _samples(BundleSource(make({"metrics/a.jsonl": lines})))
    assert list(found) == sorted(found)
    assert found[1000.0] == 1.0
    assert np.isnan([found[1005.0], found[1010.0], found[1035.0]]).all()
    assert (found[1015.0], found[1020.0], found[1025.0]) == (np.inf, -np.inf, 8.0)
    assert found[1030.0] == 9.0
    assert found[1040.0] == 5.0


def test_a_bad_line_is_counted_and_named(make: Maker) -> None:
    lines = "{broken\n" + _line([1, 2]) + '{"metric":{},"values":[1],"timestamps":[1]}\n' + _line([1, 2], [5])
    source = BundleSource(make({"metrics/a.jsonl": lines}))
    assert _samples(source) == {1000.0: 1.0, 1005.0: 2.0}
    notes = source.fetch(["running_requests"], _grid()).notes
    assert notes[0].startswith(
        "3 unreadable metrics lines left out: a.jsonl:1 (not JSON), a.jsonl:3 (no __name__)"
    )
    assert "2 values for 1 timestamps" in notes[0]


@pytest.mark.parametrize(
    "bad",
    [b"[" * 100_000, b"\xff\xfe", b"null", b"[]",
     b'{"metric":{"__name__":"up"},"values":[1],"timestamps":["x"]}',
     b'{"metric":{"__name__":"up"},"values":["x"],"timestamps":[1]}',
     b'{"metric":{"__name__":"up"},"values":[1],"timestamps":[NaN]}'],
)  # fmt: skip
def test_any_bad_line_is_survived(make: Maker, bad: bytes) -> None:
    source = BundleSource(make({"metrics/a.jsonl": bad + b"\n" + _line([1, 2]).encode()}))
    assert _samples(source) == {1000.0: 1.0, 1005.0: 2.0}
    assert (
        source.fetch(["running_requests"], _grid())
        .notes[0]
        .startswith("1 unreadable metrics line left out: a.js")
    )


def test_only_bad_lines_are_fatal(make: Maker) -> None:
    assert "a.jsonl:1" in _fails(make({"metrics/a.jsonl": "{broken\n"}))


def test_a_truncated_file_gives_what_came_before(make: Maker) -> None:
    whole = gzip.compress(b"".join(_line([place, 2], n=str(place)).encode() for place in range(3000)))
    source = BundleSource(make({"metrics/a.jsonl.gz": whole[: len(whole) // 2]}))
    rows = list(source.raw(Window(0, 4e9)))
    assert 100 < len(rows) < 3000
    assert "ends too early" in source.fetch(["running_requests"], _grid()).notes[0]


def test_a_truncated_file_with_nothing_in_it_is_fatal(make: Maker) -> None:
    assert "ends too early" in _fails(
        make({"metrics/a.jsonl.gz": gzip.compress(_line([1, 2]).encode())[:15]})
    )


def test_a_newer_schema_says_so(make: Maker) -> None:
    said = _fails(make({}, {"schema": "diag.bundle/2", "window": "not even a window"}), BundleTooNew)
    assert "diag.bundle/2" in said
    assert "upgrade" in said


@pytest.mark.parametrize("schema", ["other/1", "", "diag.bundle/x"])
def test_another_schema_is_none(make: Maker, schema: str) -> None:
    assert "schema" in _fails(make({}, {"schema": schema}))


def test_a_broken_description(make: Maker) -> None:
    assert "bundle.json" in _fails(make({"bundle.json": "{"}))


def test_no_bundle_at_all(tmp_path: Path) -> None:
    assert "does not exist" in _fails(tmp_path / "none")
    assert "no bundle.json" in _fails(tmp_path)
    (tmp_path / "text.zip").write_text("not a zip")
    assert "no readable" in _fails(tmp_path / "text.zip")


def test_label_and_notes_are_never_read(make: Maker) -> None:
    # Anything at all may stand there: a reader that looked would stumble.
    source = BundleSource(
        make({"metrics/a.jsonl": _line([1, 2])}, {"label": [1, {"causes": 3}], "notes": 17})
    )
    assert source.extent() == Window(1000, 1060)
    assert not hasattr(source._description, "label")


def test_a_marked_incident_is_passed_on(make: Maker) -> None:
    source = BundleSource(make({}, {"incident": {"from": 1010, "to": 1020}}))
    assert source.marked() == (None, Window(1010, 1020))


def test_attachments_are_found(make: Maker) -> None:
    files = ("requests/a.jsonl", "traces/b.jsonl.gz", "logs/vllm-0.log.gz", "events.jsonl")
    folder = make(dict.fromkeys((*files, "logs/notes.txt"), b""))
    attached = BundleSource(folder).attachments()
    found = [*attached.requests, *attached.traces, *attached.logs, *attached.events]
    assert [str(path.relative_to(folder)) for path in found] == list(files)


@pytest.mark.parametrize("inner", ["", "my-bundle/"])
@pytest.mark.parametrize("form", ["zip", "tar.gz"])
def test_archives_open_and_leave_nothing_behind(make: Maker, tmp_path: Path, form: str, inner: str) -> None:
    folder = make({"metrics/a.jsonl": _line([1, 2]), "logs/vllm.log": "hello"})
    archive = tmp_path / f"packed.{form}"
    files = [path for path in folder.rglob("*") if path.is_file()]
    if form == "zip":
        with zipfile.ZipFile(archive, "w") as packed:
            for path in files:
                packed.write(path, inner + str(path.relative_to(folder)))
    else:
        with tarfile.open(archive, "w:gz") as tar:
            for path in files:
                tar.add(path, inner + str(path.relative_to(folder)))
    with BundleSource(archive) as source:
        assert _samples(source) == {1000.0: 1.0, 1005.0: 2.0}
        log = source.attachments().logs[0]
        assert log.read_text() == "hello"
    assert not log.exists()


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:\\evil"])
def test_a_zip_that_reaches_outside_is_refused(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "bad.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("bundle.json", json.dumps(_DESCRIPTION))
        packed.writestr(name, "x")
    assert "outside its folder" in _fails(archive)


def _tar_of(path: Path, **member: Any) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo(member.pop("name"))
        for field, value in member.items():
            setattr(info, field, value)
        tar.addfile(info, io.BytesIO(b""))
    return path


def test_a_tar_that_reaches_outside_is_refused(tmp_path: Path) -> None:
    assert "outside its folder" in _fails(_tar_of(tmp_path / "a.tar.gz", name="../evil"))
    link = {"name": "metrics/a", "type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}
    assert "link" in _fails(_tar_of(tmp_path / "b.tar.gz", **link))
    device = {"name": "metrics/a", "type": tarfile.CHRTYPE}
    assert "link" in _fails(_tar_of(tmp_path / "c.tar.gz", **device))


def test_a_truncated_archive(make: Maker, tmp_path: Path) -> None:
    folder = make({"metrics/a.jsonl": os.urandom(50_000).hex()})
    archive = tmp_path / "cut.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, "b")
    archive.write_bytes(archive.read_bytes()[:20_000])
    assert "cut.tar.gz" in _fails(archive)
    packed = tmp_path / "cut.zip"
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.write(folder / "metrics/a.jsonl", "a")
    packed.write_bytes(packed.read_bytes()[:30_000])
    assert "cut.zip" in _fails(packed)


def test_a_bomb_is_stopped(tmp_path: Path) -> None:
    archive = tmp_path / "bomb.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a", b"\0" * 3_000_000)
    before = set(Path(tmp_path).iterdir())
    with pytest.raises(BundleError, match="unpacks to more than"):
        unpacked(archive, largest_bytes=1_000_000)
    assert set(Path(tmp_path).iterdir()) == before


def test_lines_are_streamed_and_unknown_metrics_never_kept(make: Maker) -> None:
    import tracemalloc

    strange = _line([0.123456789] * 2000, __name__="app_unknown_metric")
    folder = make({"metrics/a.jsonl": strange * 300 + _line([1, 2])})
    size = (folder / "metrics/a.jsonl").stat().st_size
    tracemalloc.start()
    source = BundleSource(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(list(source.raw(Window(0, 4e9)))) == 1
    assert peak < size / 10
