"""The nouns, from raw series to verdict. Frozen records, no behaviour beyond small look-ups.

    Window, Series, Gap, Fact, Event, Join  ─>  Case
    Case  ─>  Finding                       what changed, or provably did not
    Finding  ─>  Evidence, Missing          what one hypothesis makes of it
    Evidence  ─>  Assessment  ─>  Verdict   what triage makes of all of them

Times are unix seconds (UTC) as float; unknown is ``None`` or NaN, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

    from diag.exhibits import Exhibit, Fired, Impact, Query

__all__ = [
    "Assessment",
    "Card",
    "Case",
    "ChainLink",
    "Coverage",
    "Event",
    "Evidence",
    "Fact",
    "Finding",
    "Floats",
    "Gap",
    "Join",
    "Labels",
    "Lead",
    "Missing",
    "Mitigation",
    "Moment",
    "Series",
    "SourceRef",
    "Stance",
    "State",
    "Symptom",
    "Verdict",
    "Window",
]


Floats = NDArray[np.float64]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A closed span of time, unix seconds."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Length."""
        return self.end - self.start

    def contains(self, time: float) -> bool:
        """Whether ``time`` lies inside, ends included."""
        return self.start <= time <= self.end


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One canonical signal of one thing, on the case's grid.

    ``times`` and ``values``: float64, equal length, times ascending; NaN marks a grid point without
    data. ``labels`` are canonical: ``instance`` (scrape target), ``node``, ``pod``, ``gpu``, …
    ``producer`` is the engine file that defined the expression.
    """

    signal: str
    labels: Labels
    times: Floats
    values: Floats
    producer: str = ""

    def within(self, window: Window) -> Floats:
        """The values inside ``window``, NaN included."""
        return self.values[(self.times >= window.start) & (self.times <= window.end)]


@dataclass(frozen=True, slots=True)
class Gap:
    """A signal that a source could not deliver, why, and how to get it."""

    signal: str
    reason: str
    how_to_get: str


@dataclass(frozen=True, slots=True)
class Fact:
    """Something configured or stated rather than measured, from an info metric or a start-up log.

    Names in use: ``prefix_caching`` ("on"/"off"), ``kv_blocks``, ``block_size_tokens``,
    ``kv_capacity_tokens``, ``max_num_seqs``, ``max_num_batched_tokens``, ``max_model_len_tokens``,
    ``chunked_prefill`` ("on"/"off"), ``long_prefill_threshold_tokens``, ``full_prompt_reservation``
    ("on"/"off"), ``cuda_graphs`` ("on"/"off"), ``cuda_graph_tokens_max`` (largest captured decode step),
    ``speculative_decoding`` ("on"/"off"), ``speculative_tokens``, ``max_loras``, ``engine_version``,
    ``model``, ``cache_config`` (all labels, as sorted ``k=v`` text), ``alert`` (one that fired).
    ``value`` is text; numbers are plain decimal. ``since``/``until`` bound the time it was seen; None
    means not known.
    """

    name: str
    value: str
    labels: Labels
    source: str
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a time. ``kind``: deploy, config, restart, maintenance, other (as
    marked by people), or from logs: preemption, xid, bind_failure, oom_kill, engine_error.
    ``marked`` says whether a person or a deploy tool marked it."""

    time: float
    kind: str
    target: str
    text: str
    marked: bool = True


@dataclass(frozen=True, slots=True)
class Join:
    """Which node (and GPUs) an engine instance runs on, and how we know.

    ``how``: "label" (a shared label says so), "host" (equal host part of the address), "only one"
    (nothing else it could be: weaker), or "" when nothing joins them; then ``node`` is None."""

    instance: str
    node: str | None
    gpus: tuple[str, ...]
    how: str


@dataclass(frozen=True, slots=True)
class SourceRef:
    """Where data came from. ``ref`` never holds a credential."""

    kind: str
    ref: str


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """All that is known about one window, before anyone judges it.

    ``requests``: one row a request, columns as in ``diag.records.record`` (float64 for numbers,
    NaN unknown; ``ts`` ascending), or None when there are no records. ``baseline`` and
    ``incident`` are what a person marked, if anything. ``page_stalls``: instances whose scraped
    page was bit-identical, counters of the serving process included, with the window of it.
    """

    window: Window
    step_seconds: float
    series: Mapping[str, tuple[Series, ...]]
    gaps: tuple[Gap, ...] = ()
    facts: tuple[Fact, ...] = ()
    events: tuple[Event, ...] = ()
    joins: tuple[Join, ...] = ()
    requests: pd.DataFrame | None = None
    baseline: Window | None = None
    incident: Window | None = None
    sources: tuple[SourceRef, ...] = ()
    notes: tuple[str, ...] = ()
    scrape_seconds: float | None = None
    look_back_seconds: float | None = None
    page_stalls: Mapping[str, tuple[Window, ...]] = field(default_factory=dict)

    def of(self, signal: str) -> tuple[Series, ...]:
        """All series of ``signal``; empty when there are none."""
        return self.series.get(signal, ())

    def facts_named(self, name: str) -> Iterator[Fact]:
        """The facts called ``name``, in order of first sight."""
        return (fact for fact in self.facts if fact.name == name)


@dataclass(frozen=True, slots=True)
class Finding:
    """How one series stood before and during, and what the data can exclude.

    ``effect`` is signed and counted in the signal's floors: |effect| ≥ 1 is "moved".
    ``low`` and ``high`` bound the true effect (95 %, one-sided each), in floors too; None when the
    baseline is too short to say. ``present_ratio``: share of the incident's grid points with data.
    ``onset``: first lasting departure from the baseline in the direction of the effect.
    ``peak``: the largest departure from baseline in the incident, in the signal's unit.
    """

    signal: str
    labels: Labels
    unit: str
    before: float
    during: float
    effect: float
    low: float | None
    high: float | None
    onset: float | None
    present_ratio: float
    peak: float

    @property
    def moved(self) -> bool:
        """Whether the shift reaches the floor, either way."""
        return abs(self.effect) >= 1.0


class Stance(StrEnum):
    """What a piece of evidence says about a hypothesis."""

    FOR = "for"
    AGAINST = "against"


class State(StrEnum):
    """Never two, always four."""

    SUPPORTED = "supported"
    UNDECIDED = "undecided"
    RULED_OUT = "ruled_out"
    NOT_ASSESSABLE = "not_assessable"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation as one hypothesis sees it.

    ``cue`` names the row of the weight table. ``degree`` (0 … 1) is how far the prediction came
    true: 1 in full, 0 not at all (then the stance is against). ``decisive`` marks contrary evidence
    that meets the power condition: present for the window, and an effect provably below what the
    hypothesis predicts. ``weight`` (natural-log likelihood ratio) is set by triage.
    """

    cue: str
    signal: str
    stance: Stance
    degree: float
    text: str
    before: float | None = None
    during: float | None = None
    unit: str = ""
    onset: float | None = None
    decisive: bool = False
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Missing:
    """A signal a hypothesis asked for and did not get. ``needed``: nothing can be said without."""

    signal: str
    how_to_get: str
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Mitigation:
    """One thing to do; safe ones cost nothing but a little capacity and can be undone at once."""

    text: str
    safe: bool


@dataclass(frozen=True, slots=True)
class Card:
    """What a hypothesis is, apart from any data. ``leads_to``: ids it can bring about, so that they
    are told as its consequences. ``chain``: signals from cause to symptom, in causal order."""

    id: str
    title: str
    mechanism: str
    signs: tuple[str, ...]
    rules_out: tuple[str, ...]
    look_alikes: Mapping[str, str]
    mitigations: tuple[Mitigation, ...]
    next_check: str
    chain: tuple[str, ...] = ()
    leads_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One link from cause to symptom, with when it moved."""

    signal: str
    onset: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Assessment:
    """One hypothesis, judged."""

    id: str
    title: str
    state: State
    confidence: float
    rank: int
    scope: Mapping[str, tuple[str, ...]]
    onset: float | None
    explained_share: float | None
    explained_by: str | None
    chain: tuple[ChainLink, ...]
    evidence: tuple[Evidence, ...]
    missing: tuple[Missing, ...]
    mitigations: tuple[Mitigation, ...]
    next_check: str
    runbook: str


@dataclass(frozen=True, slots=True)
class Symptom:
    """What users feel."""

    signal: str
    scope: Mapping[str, str]
    before: float | None
    during: float | None
    unit: str
    onset: float | None


@dataclass(frozen=True, slots=True)
class Moment:
    """A line of the timeline."""

    time: float
    signal: str
    text: str


@dataclass(frozen=True, slots=True)
class Lead:
    """An unexplained mover, for whoever has to go on looking."""

    signal: str
    labels: Mapping[str, str]
    before: float | None
    during: float | None
    unit: str
    text: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the vocabulary was there."""

    signals_present: int
    signals_missing: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer. Serialises to ``diag.verdict/1`` (see ``diag.renderers.json``). ``impact`` and
    ``exhibits`` are what a report shows beside the words; ``names``: who is who, so that it can hide them;
    ``fired``: the alerts that fired, in order of time; ``queries``: how to see the told signals again."""

    version: str
    generated_at: float
    source: tuple[SourceRef, ...]
    baseline: Window | None
    incident: Window | None
    summary: str
    symptoms: tuple[Symptom, ...]
    leading: str | None
    assessments: tuple[Assessment, ...]
    timeline: tuple[Moment, ...]
    leads: tuple[Lead, ...]
    coverage: Coverage
    notes: tuple[str, ...] = ()
    impact: Impact | None = None
    exhibits: tuple[Exhibit, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fired: tuple[Fired, ...] = ()
    queries: tuple[Query, ...] = ()
