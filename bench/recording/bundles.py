"""Write what was recorded as a ``diag.bundle/1``, as a folder and packed."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench.recording.loads import Record
from bench.recording.scenarios import Scenario

__all__ = ["pack", "write_head", "write_log", "write_requests"]


def write_head(
    folder: Path, scenario: Scenario, window: tuple[int, int], onset_unix: float, notes: str
) -> None:
    """Write ``bundle.json`` with the label, and ``events.jsonl`` when the scenario has an event."""
    label: dict[str, object] = {
        "causes": list(scenario.causes),
        "scope": {kind: list(names) for kind, names in scenario.scope},
        "onset": round(onset_unix, 3) if scenario.causes else None,
        "kind": "recorded",
        "leading": scenario.causes[0] if scenario.causes else None,
    }
    if scenario.accept:
        label["accept"] = list(scenario.accept)
    head = {
        "schema": "diag.bundle/1",
        "name": scenario.name,
        "window": {"from": window[0], "to": window[1]},
        "step_seconds": 2,
        "incident": None,
        "label": label,
        "notes": notes,
    }
    (folder / "bundle.json").write_text(json.dumps(head, indent=1) + "\n")
    if scenario.event is not None:
        kind, target, text = scenario.event
        event = {"time": round(onset_unix, 3), "kind": kind, "target": target, "text": text}
        (folder / "events.jsonl").write_text(json.dumps(event) + "\n")


def write_requests(folder: Path, records: Iterable[Record], start: int, end: int) -> None:
    """Write the requests sent in [start, end]; one still open at the end has no status."""
    lines = [json.dumps(_row(r)) for r in records if start <= r.answer.sent_unix <= end]
    _write_gzip(folder / "requests" / "requests.jsonl.gz", "".join(f"{line}\n" for line in lines).encode())


def _row(record: Record) -> dict[str, object]:
    answer = record.answer
    row: dict[str, object] = {
        "ts": round(answer.sent_unix, 3),
        "session": record.session,
        "tenant": record.tenant,
        "model": "tiny",
        "instance": record.instance,
        "request_id": record.request_id,
    }
    facts: dict[str, object | None] = {
        "ttft_seconds": None if answer.ttft_seconds is None else round(answer.ttft_seconds, 4),
        "prompt_tokens": answer.prompt_tokens,
        "output_tokens": answer.output_tokens,
        "cached_tokens": answer.cached_tokens,
        "status": answer.status,
        "duration_seconds": None if answer.duration_seconds is None else round(answer.duration_seconds, 4),
    }
    return row | {name: fact for name, fact in facts.items() if fact is not None}


def write_log(folder: Path, name: str, log: Path, span: tuple[int, int], hidden: Mapping[str, str]) -> None:
    """Write the whole lines of ``log`` between two offsets, each key of ``hidden`` replaced by its value."""
    start_byte, end_byte = span
    with log.open("rb") as source:
        source.seek(start_byte)
        text = source.read(end_byte - start_byte)
    for path, word in hidden.items():
        text = text.replace(path.encode(), word.encode())
    _write_gzip(folder / "logs" / f"{name}.log.gz", text[: text.rfind(b"\n") + 1])


def pack(folder: Path) -> Path:
    """Pack ``folder`` beside itself as ``.tar.gz``, without owner or time of the files."""
    path = folder.with_name(folder.name + ".tar.gz")
    with gzip.GzipFile(path, "wb", mtime=0) as out, tarfile.open(fileobj=out, mode="w") as archive:
        for source in sorted(folder.rglob("*")):
            if source.is_file():
                entry = tarfile.TarInfo(f"{folder.name}/{source.relative_to(folder)}")
                entry.size = source.stat().st_size
                with source.open("rb") as content:
                    archive.addfile(entry, content)
    return path


def _write_gzip(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(path, "wb", mtime=0) as out:
        out.write(content)
