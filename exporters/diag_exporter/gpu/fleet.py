"""The GPUs of this machine, remembered across losses, resets and driver reloads.

A GPU that was ever seen stays known: it is up or it is not, and the others go on. All of this runs in
the sampling thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from diag_exporter.families import Group
from diag_exporter.gpu.nvml import (
    Library,
    Lost,
    NoAnswer,
    NotFound,
    NvmlError,
    Replaced,
    ResetRequired,
    RestartNeeded,
    Unavailable,
    Unsupported,
)

__all__ = ["Fleet", "Gpu"]

_T = TypeVar("_T")

_REFUSED_SECONDS = 600.0  # a refused reading is asked for again after this: MIG may have been switched
_LOOK_SECONDS = 30.0  # how often GPUs are counted anew
_LOOK_LOST_SECONDS = 10.0  # the same while one is missing
_RETRY_SECONDS = 10.0  # between attempts to open a library that does not open
_REVIVE_SECONDS = 300.0  # between fresh initialisations for the sake of a missing GPU: they disturb


class Gpu:
    """One GPU: who it is, how to ask it, and what it has refused to tell."""

    def __init__(self, library: Library, index: int, handle: object, uuid: str, name: str, bus: str) -> None:
        self.library = library
        self.index = index
        self.handle = handle
        self.uuid = uuid
        self.labels = (uuid, str(index))  # values of uuid and gpu, which every series of a GPU carries
        self.name = name
        self.bus = bus
        self.state = "up"  # or lost, reset_required
        self.now = 0.0  # unix seconds of the current pass
        self._refused: dict[tuple[Any, ...], float] = {}
        self._kept: dict[str, tuple[float, Any]] = {}
        self._fields: dict[Group, tuple[float, dict[int, float]]] = {}

    def ask(self, function: str, *arguments: Any) -> Any:
        """The answer of one call on this GPU, or None: unsupported (not asked again for a while), nothing
        there, or no answer this time. A lost GPU or a replaced driver is raised."""
        return self.attempt((function, *arguments), self.library.call, function, self.handle, *arguments)

    def attempt(self, key: tuple[Any, ...], call: Callable[..., Any], *arguments: Any) -> Any:
        """``call(*arguments)`` with the manners of ``ask``; ``key`` names the reading."""
        until = self._refused.get(key)
        if until is not None:
            if self.now < until:
                return None
            del self._refused[key]
        try:
            return call(*arguments)
        except Unsupported:
            self._refused[key] = self.now + _REFUSED_SECONDS
        except (NotFound, NoAnswer):
            pass
        return None

    def kept(self, key: str, read: Callable[[], _T]) -> _T:
        """A reading that hardly ever changes (a maximum, a threshold), asked for every ten minutes."""
        entry = self._kept.get(key)
        if entry is not None and entry[0] <= self.now < entry[0] + _REFUSED_SECONDS:
            value: _T = entry[1]
            return value
        value = read()
        if value is not None:  # no answer this time is no answer to keep
            self._kept[key] = (self.now, value)
        return value

    def shared_fields(self, group: Group, ids: Iterable[int]) -> dict[int, float]:
        """Field values of a group, read in one call and shared by the collectors of a pass, which
        are all called with one ``now``."""
        entry = self._fields.get(group)
        if entry is not None and entry[0] == self.now:
            return entry[1]
        wanted = [one for one in ids if self._refused.get(("field", one), 0.0) <= self.now]
        values: dict[int, float] = {}
        if wanted:
            answers = self.attempt(("fields", group), self.library.fields, self.handle, wanted)
            if answers is not None:
                values = answers.values
                for one in answers.refused:
                    self._refused["field", one] = self.now + _REFUSED_SECONDS
        self._fields[group] = (self.now, values)
        return values

    def renew(self, index: int, handle: object) -> None:
        """Seen (again) under this index and handle; refusals are forgotten if it was away."""
        if self.state != "up":
            self._refused.clear()
            self._kept.clear()
        self.index, self.handle, self.state = index, handle, "up"
        self.labels = (self.uuid, str(index))
        self._fields.clear()

    def forget(self) -> None:
        """Another library answers from now on: what the old one refused means nothing."""
        self._refused.clear()
        self._kept.clear()
        self._fields.clear()


class Fleet:
    """Opens the library, finds the GPUs, and reads them one by one."""

    def __init__(
        self,
        library: Library,
        *,
        expected: int | None = None,
        on_restart: Callable[[str], None] | None = None,
    ) -> None:
        self.library = library
        self.generation = 0  # grows with each initialisation: handles of an older one are void
        self.known: dict[str, Gpu] = {}
        self.unnamed: tuple[int, ...] = ()  # indices of GPUs that were lost before they told their uuid
        self.restart_needed = ""
        self._expected = expected
        self._on_restart = on_restart
        self._fields: dict[Group, tuple[int, ...]] = {"fast": (), "slow": ()}
        self._looked: float | None = None
        self._failed: tuple[float, NvmlError] | None = None
        self._missing: float | None = None  # since when (or since the last revival) a GPU is missing
        self._begun: float | None = None  # when the library was last loaded anew because all were lost
        self._stale = False  # the driver was replaced under us

    @property
    def expected(self) -> int:
        """GPUs there should be: as told, else as many as were ever seen at once."""
        return len(self.known) + len(self.unnamed) if self._expected is None else self._expected

    @property
    def usable(self) -> bool:
        """Whether there is a driver that answers at all."""
        return self.library.opened and self._failed is None and not self._stale

    @property
    def visible(self) -> int:
        """GPUs that answer."""
        return sum(one.state == "up" for one in self.known.values()) if self.usable else 0

    def want_fields(self, group: Group, ids: Iterable[int]) -> None:
        """Have these field ids read with the others of the group."""
        self._fields[group] = tuple(dict.fromkeys((*self._fields[group], *ids)))

    def fields(self, gpu: Gpu, group: Group) -> dict[int, float]:
        """The group's field values of one GPU by id, in the driver's units."""
        return gpu.shared_fields(group, self._fields[group])

    def read(self, now: float, reader: Callable[[Gpu], _T]) -> list[tuple[Gpu, _T]]:
        """``reader`` on every GPU that is up. One that gets lost meanwhile is left out and marked."""
        self.prepare(now)
        readings: list[tuple[Gpu, _T]] = []
        for gpu in list(self.known.values()):
            if gpu.state != "up":
                continue
            gpu.now = now
            try:
                readings.append((gpu, reader(gpu)))
            except (Lost, ResetRequired) as error:
                gpu.state = "lost" if isinstance(error, Lost) else "reset_required"
                self._looked = now
            except (Replaced, Unavailable):
                self._stale = True
                raise
        return readings

    def prepare(self, now: float) -> None:
        """Have the library open and the GPUs counted; raise ``NvmlError`` if that cannot be."""
        if self._failed is not None:
            if 0 <= now - self._failed[0] < _RETRY_SECONDS:
                raise self._failed[1]
            self._failed = None
        try:
            if self._stale or not self.library.opened:
                self._open(unload=self._stale)
                self._look(now)
            elif self._due(now):
                self._revive_if_due(now)
                self._look(now)
        except NvmlError as error:
            self._failed = (now, error)
            self._stale = self._stale or isinstance(error, Replaced)
            raise
        except RestartNeeded as reason:
            if not self.restart_needed and self._on_restart is not None:
                self._on_restart(str(reason))
            self.restart_needed = str(reason)
            raise

    def _due(self, now: float) -> bool:
        missing = self.unnamed or any(one.state != "up" for one in self.known.values())
        interval = _LOOK_LOST_SECONDS if missing else _LOOK_SECONDS
        return self._looked is None or not 0 <= now - self._looked < interval

    def _open(self, *, unload: bool) -> None:
        if unload:
            self.library.reopen(unload=True)
        else:
            self.library.open()
        self._stale = False
        self.generation += 1
        for gpu in self.known.values():
            gpu.forget()

    def _revive_if_due(self, now: float) -> None:
        """A GPU that was reset comes back only to those who initialise after it."""
        if all(one.state == "up" for one in self.known.values()) and not self.unnamed:
            self._missing = None
            return
        if self._missing is None:
            self._missing = now
        if not 0 <= now - self._missing < _REVIVE_SECONDS:
            self._missing = now
            self.library.close()
            self._open(unload=False)

    def _look(self, now: float) -> None:
        self._looked = now
        seen: set[str] = set()
        unnamed: list[int] = []
        try:
            count = int(self.library.call("nvmlDeviceGetCount"))
        except NoAnswer:
            if self.known:
                return  # one time-out is no reason to call them all lost
            raise
        for index in range(count):
            try:
                seen.add(self._identify(index))
            except (Lost, ResetRequired) as error:
                gpu = self._at(index)
                if gpu is None:
                    unnamed.append(index)
                elif gpu.uuid not in seen:
                    gpu.state = "lost" if isinstance(error, Lost) else "reset_required"
            except (NotFound, NoAnswer, Unsupported):
                gpu = self._at(index)
                if gpu is None:
                    unnamed.append(index)
                else:
                    seen.add(gpu.uuid)  # as it was: what it is now, the next look tells
        for gpu in self.known.values():
            if gpu.uuid not in seen and gpu.state == "up":
                gpu.state = "lost"
        named = {one.index for one in self.known.values()}
        self.unnamed = tuple(index for index in unnamed if index not in named)
        # A driver that has lost every GPU at once was rather reloaded: begin again, but not in a loop.
        if self.known and not seen and not (self._begun and 0 <= now - self._begun < _REVIVE_SECONDS):
            self._begun = now
            self._stale = True

    def _at(self, index: int) -> Gpu | None:
        """Whom a place belonged to: of one that does not answer, nothing else is known."""
        return next((one for one in self.known.values() if one.index == index), None)

    def _identify(self, index: int) -> str:
        call = self.library.call
        handle = call("nvmlDeviceGetHandleByIndex", index)
        uuid = str(call("nvmlDeviceGetUUID", handle))
        gpu = self.known.get(uuid)
        if gpu is None:
            name, bus = "unknown", "unknown"
            with contextlib.suppress(NotFound, NoAnswer, Unsupported):
                name = str(call("nvmlDeviceGetName", handle))
            with contextlib.suppress(NotFound, NoAnswer, Unsupported):  # an integrated GPU has no bus
                bus = str(call("nvmlDeviceGetPciInfo", handle).busId)
            self.known[uuid] = Gpu(self.library, index, handle, uuid, name, bus)
        else:
            # The uuid may come from a cache of the library; the card itself must answer to be up.
            if gpu.state != "up":
                with contextlib.suppress(NotFound, NoAnswer, Unsupported):
                    call("nvmlDeviceGetPersistenceMode", handle)
            gpu.renew(index, handle)
        return uuid
