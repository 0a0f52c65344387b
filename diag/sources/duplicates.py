"""The same target scraped twice must count once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from diag.signals.frame import RawSeries
from diag.sources.naming import START_METRIC

__all__ = ["SCRAPER_LABELS", "drop_second_scrapes", "subset_groups"]

# Labels that name who scraped, not what was scraped.
SCRAPER_LABELS = ("job", "replica", "prometheus_replica", "prometheus")
_AGREEMENT_RATIO = 0.7
_TOLERANCE_RATIO = 0.02

Scraper = tuple[str, ...]


def drop_second_scrapes(raw: Sequence[RawSeries]) -> tuple[list[RawSeries], tuple[str, ...]]:
    """Keep one of several scrapes of one target; return what is left, and notes about the rest.

    Scrapes are of one target when they share ``instance`` and all other labels but the scraper's,
    and agree: same process start, or nearly all last values within two per cent.
    """
    by_target: dict[str, dict[Scraper, list[RawSeries]]] = defaultdict(lambda: defaultdict(list))
    for one in raw:
        instance = one.labels.get("instance", "")
        if instance:
            by_target[instance][_scraper(one.labels)].append(one)
    doubled: set[int] = set()
    notes: list[str] = []
    for instance, scrapes in sorted(by_target.items()):
        if len(scrapes) < 2:
            continue
        order = sorted(scrapes, key=lambda who: (-len(scrapes[who]), who))
        for position, later in enumerate(order[1:], start=1):
            first = next(
                (who for who in order[:position] if _same_target(scrapes[who], scrapes[later])), None
            )
            if first is not None:
                keys = {_identity(one.labels) for one in scrapes[first]}
                doubled |= {id(one) for one in scrapes[later] if _identity(one.labels) in keys}
                notes.append(f"{instance} is scraped twice ({_said(first)} and {_said(later)}); counted once")
    return [one for one in raw if id(one) not in doubled], tuple(notes)


def subset_groups(members: Mapping[str, frozenset[str]]) -> list[tuple[str, str]]:
    """(dropped, kept) pairs: scrapers whose every target another scraper covers too."""
    order = sorted(members, key=lambda who: (-len(members[who]), who))
    kept: list[str] = []
    dropped: list[tuple[str, str]] = []
    for who in order:
        over = next((other for other in kept if members[who] <= members[other]), None)
        if over is None:
            kept.append(who)
        else:
            dropped.append((who, over))
    return dropped


def _scraper(labels: Mapping[str, str]) -> Scraper:
    return tuple(labels.get(name, "") for name in SCRAPER_LABELS)


def _said(scraper: Scraper) -> str:
    return " ".join(f"{n}={v}" for n, v in zip(SCRAPER_LABELS, scraper, strict=True) if v) or "no job"


def _identity(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in labels.items() if name not in SCRAPER_LABELS)


def _same_target(first: Iterable[RawSeries], later: Iterable[RawSeries]) -> bool:
    known = {_identity(one.labels): one for one in first}
    shared = [(known[key], one) for one in later if (key := _identity(one.labels)) in known]
    telling = 0
    agreeing = 0
    for ours, theirs in shared:
        name = ours.labels.get("__name__", "")
        if name in ("up",) or name.startswith("scrape_") or not ours.times.size or not theirs.times.size:
            continue
        if name == START_METRIC:
            return bool(set(ours.values.tolist()) & set(theirs.values.tolist()))
        one, other = float(ours.values[-1]), float(theirs.values[-1])
        if one == 0.0 and other == 0.0:
            continue
        telling += 1
        agreeing += abs(one - other) <= _TOLERANCE_RATIO * max(abs(one), abs(other))
    if not telling:
        # Only zeros, or only `up`: equal in all that can be seen, if anything but `up` is shared.
        return any(not ours.labels.get("__name__", "").startswith(("up", "scrape_")) for ours, _ in shared)
    return agreeing >= _AGREEMENT_RATIO * telling
