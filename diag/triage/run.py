"""One case, one verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diag.detectors.episodes import Episode, begins_bad, common_onset, find_episode, weight_of
from diag.detectors.findings import Spans
from diag.detectors.lasting import bad_throughout
from diag.detectors.symptoms import Course, metric_courses
from diag.detectors.view import View, view_of
from diag.detectors.workload import request_courses
from diag.hypotheses import HYPOTHESES
from diag.hypotheses.registry import Hypothesis
from diag.model import Case, Verdict, Window
from diag.records.cohorts import Requests, from_frame
from diag.triage.compose import compose
from diag.triage.rank import judge

__all__ = ["look", "triage"]

_FELT = 1.0  # an episode weaker than its limit is not felt
_CHANCE = 8.0  # all evidence together: of dozens of courses that are well, one reaches this now and then
_LOOK_BACK_POINTS = 5
_OPENS_BAD = "it opens slow and gets better"
_LOOK_BACK = (
    "the window holds no quiet time ({why}): what went wrong may have begun before it; look further back "
    "with --from, or name a quiet time with --baseline-from and --baseline-to"
)


def triage(
    case: Case,
    *,
    now: float,
    version: str,
    look_back_seconds: float | None = None,
    hypotheses: Sequence[Hypothesis] = HYPOTHESES,
) -> Verdict:
    """Judge ``case``. ``now`` (unix seconds) and ``version`` only stamp the verdict; ``hypotheses`` may be
    fewer than the catalogue's, to see what is said of a cause that nobody had thought of."""
    view = look(case, look_back_seconds)
    return compose(view, judge(view, hypotheses), now=now, version=version)


def look(case: Case, look_back_seconds: float | None = None) -> View:
    """Find symptoms and onset, choose the two windows, and compute every finding."""
    back = look_back_seconds or case.look_back_seconds or _LOOK_BACK_POINTS * case.step_seconds
    requests = (
        from_frame(case.requests, case.window.end)
        if case.requests is not None and len(case.requests)
        else None
    )
    courses = _courses(case, requests, back)
    episodes = _episodes(case, courses)
    baseline, incident = _windows(case, episodes)
    view = view_of(case, Spans(baseline, incident, case.step_seconds, back), episodes, requests)
    if episodes:
        return view
    opens_bad = any(begins_bad(course, case.window) for course in courses)
    why = _OPENS_BAD if opens_bad else bad_throughout(view)
    return _without_quiet(view, why) if why else view


def _without_quiet(view: View, why: str) -> View:
    case = replace(view.case, notes=(*view.case.notes, _LOOK_BACK.format(why=why)))
    return replace(view, case=case, bad_before=why)


def _courses(case: Case, requests: Requests | None, back: float) -> list[Course]:
    courses = list(metric_courses(case, back))
    if requests is not None:
        courses += list(request_courses(requests, case.window, case.step_seconds))
    return courses


def _episodes(case: Case, courses: list[Course]) -> tuple[Episode, ...]:
    baseline = case.baseline
    if baseline is None and case.incident is not None and case.incident.start > case.window.start:
        baseline = Window(case.window.start, case.incident.start)
    found = [find_episode(course, case.window, baseline) for course in courses]
    felt = [e for e in found if e is not None and e.strength >= _FELT]
    if weight_of(felt) < _CHANCE:
        return ()
    return tuple(sorted(felt, key=lambda e: (-e.strength, e.onset, e.course.signal)))


def _windows(case: Case, episodes: tuple[Episode, ...]) -> tuple[Window, Window]:
    """Before and since the onset; two halves when nothing is wrong."""
    window = case.window
    if not episodes:
        middle = window.start + window.seconds / 2
        return case.baseline or Window(window.start, middle), case.incident or Window(middle, window.end)
    onset = common_onset(episodes, case.step_seconds)
    end = max(e.end for e in episodes)
    if case.baseline is not None:
        return case.baseline, Window(max(onset, case.baseline.end), end)
    # One step of distance: the last quiet sample may already hold the first bad request.
    quiet_end = max(window.start + 3 * case.step_seconds, onset - case.step_seconds)
    return Window(window.start, quiet_end), Window(onset, end)
