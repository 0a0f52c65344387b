"""Judge many cases on several processors, keeping every row, so that a second run only renders."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import cache
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec

from diag.accuracy.corpus import Filled, Spec, fill, make, name_of, write
from diag.accuracy.families import Family, Quota, quotas
from diag.accuracy.judging import Clock, Task, judged
from diag.accuracy.row import Row
from diag.accuracy.sources import Work, opened
from diag.errors import DiagError

__all__ = ["cpu_seconds", "fingerprint", "judge_all", "make_family", "remake"]

T = TypeVar("T")
Said = Callable[[str], None]

# What a row depends on; scoring, reports and commands are left out, since they only read rows.
_JUDGED_BY = (
    "detectors", "engines", "hypotheses", "model.py", "quantities.py", "records", "signals", "sources",
    "stats", "triage",
    "accuracy/baselines.py", "accuracy/columns.py", "accuracy/judging.py", "accuracy/label.py",
    "accuracy/reading.py", "accuracy/row.py", "accuracy/sources.py", "accuracy/suspects.py",
    "accuracy/thresholds.py",
    "simulate/reconstructed",
)  # fmt: skip


@cache
def fingerprint() -> str:
    """Of the code that judges: rows of another fingerprint are stale."""
    root = Path(str(files("diag")))
    hasher = hashlib.sha256()
    for name in _JUDGED_BY:
        path = root / name
        for one in [path] if path.is_file() else sorted(path.rglob("*.py")):
            hasher.update(one.relative_to(root).as_posix().encode())
            hasher.update(one.read_bytes())
    return hasher.hexdigest()[:16]


def judge_all(
    works: Sequence[Work], *, kept: Path | None, task: Task, jobs: int = 1, say: Said | None = None
) -> list[Row]:
    """A row for every case, in order. ``kept``: folder of earlier rows, read and added to.

    Rows are kept by case, digest, rivals asked for and fingerprint; a case whose digest is not known before
    it is made is judged anew."""
    store = _Store(kept, task)
    rows: dict[int, Row] = {}
    todo: list[tuple[int, Work]] = []
    for number, work in enumerate(works):
        known = store.get(work)
        if known is None:
            todo.append((number, work))
        else:
            rows[number] = known
    results = _spread(_judge_one, [(number, work, task) for number, work in todo], jobs)
    for done, (number, row) in enumerate(results, start=1):
        rows[number] = row
        store.put(row)
        if say is not None:
            say(f"judged {done} of {len(todo)}")
    return [rows[number] for number in range(len(works))]


def make_family(
    family: Family, cases: int, *, folder: Path | None, jobs: int = 1, say: Said | None = None
) -> list[Filled]:
    """Fill every quota of ``family``; bundles go to ``folder`` as .tar.gz, if one is given."""
    from diag.simulate.scenarios import SCENARIOS

    wanted = quotas(SCENARIOS.values(), cases)
    made: list[Filled] = []
    for one in _spread(_fill_one, [(family, quota, folder) for quota in wanted], jobs):
        made.append(one)
        if say is not None:
            say(f"{family.name}: {len(made)} of {len(wanted)} scenarios")
    return made


def remake(
    family: str, specs: Sequence[Spec], *, folder: Path | None, jobs: int = 1, say: Said | None = None
) -> list[str]:
    """Make the cases of a manifest again; the names of those whose content differs."""
    differ: list[str] = []
    results = _spread(_remake_one, [(family, spec, folder) for spec in specs], jobs)
    for done, (name, same) in enumerate(results, start=1):
        differ += [] if same else [name]
        if say is not None:
            say(f"{family}: {done} of {len(specs)}")
    return sorted(differ)


def _judge_one(number: int, work: Work, task: Task) -> tuple[int, Row]:
    clock = Clock()
    try:
        with clock.of("make and read"):
            case, label, digest = opened(work)
        row = judged(case, label, name=work.name, family=work.family, digest=digest, task=task, clock=clock)
    except DiagError as error:
        raise DiagError(f"{work.family}/{work.name}: {error}") from None
    return number, row


def _fill_one(family: Family, quota: Quota, folder: Path | None) -> Filled:
    return fill(family, quota, take=None if folder is None else lambda made: write(made, folder))


def _remake_one(family: str, spec: Spec, folder: Path | None) -> tuple[str, bool]:
    made = make(family, spec.scenario, spec.seed)
    if folder is not None:
        write(made, folder)
    return name_of(spec), made.spec.digest == spec.digest


def _spread(call: Callable[..., T], arguments: Sequence[tuple[object, ...]], jobs: int) -> Iterator[T]:
    """Results as they come; the first error ends it all."""
    if jobs <= 1 or len(arguments) < 2:
        yield from (call(*one) for one in arguments)
        return
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        waiting: list[Future[T]] = [pool.submit(call, *one) for one in arguments]
        try:
            for one in as_completed(waiting):
                yield one.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Store:
    """Rows as JSON lines, a file for each family and set of rivals; the first line says which code judged."""

    def __init__(self, folder: Path | None, task: Task) -> None:
        self._folder = folder
        self._tag = f"{zlib.crc32(repr((task.rivals, task.held_out)).encode()):08x}"
        self._head = {"fingerprint": fingerprint(), "rivals": list(task.rivals), "held_out": task.held_out}
        self._rows: dict[str, dict[tuple[str, str], Row]] = {}

    def get(self, work: Work) -> Row | None:
        """The row of ``work``, if it was judged by this code."""
        if self._folder is None or not work.digest:
            return None
        if work.family not in self._rows:
            self._rows[work.family] = dict(self._read(work.family))
        return self._rows[work.family].get((work.name, work.digest))

    def put(self, row: Row) -> None:
        """Keep it."""
        if self._folder is None:
            return
        path = self._path(row.family)
        if row.family not in self._rows:
            self._rows[row.family] = dict(self._read(row.family))
        fresh = not path.exists() or not self._own(path)
        self._folder.mkdir(parents=True, exist_ok=True)
        with path.open("wb" if fresh else "ab") as file:
            if fresh:
                file.write(msgspec.json.encode(self._head) + b"\n")
            file.write(msgspec.json.encode(row) + b"\n")
        self._rows[row.family][row.name, row.digest] = row

    def _path(self, family: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{re.sub('[^A-Za-z0-9]+', '-', family)}.{self._tag}.jsonl"

    def _own(self, path: Path) -> bool:
        with path.open("rb") as file:
            try:
                return bool(msgspec.json.decode(file.readline()) == self._head)
            except msgspec.DecodeError:
                return False

    def _read(self, family: str) -> Iterable[tuple[tuple[str, str], Row]]:
        path = self._path(family)
        if not path.exists() or not self._own(path):
            return
        decode = msgspec.json.Decoder(Row).decode
        with path.open("rb") as file:
            file.readline()
            for line in file:
                try:
                    row = decode(line)
                except msgspec.DecodeError:
                    continue  # a run that was cut off while writing
                yield (row.name, row.digest), row


def cpu_seconds(rows: Iterable[Row]) -> dict[str, float]:
    """Mean CPU seconds a case, by what they were spent on."""
    all_rows = list(rows)
    names = dict.fromkeys(chain.from_iterable(row.seconds for row in all_rows))
    return {
        name: sum(row.seconds.get(name, 0.0) for row in all_rows) / max(len(all_rows), 1) for name in names
    }
