"""Everything that can go wrong, as a tree; each leaf knows its exit code.

    DiagError                       exit 1: the job could not be done
    ├── SourceError                 a source of metrics, records or logs
    │   ├── SourceUnreachable       no answer: refused, timed out, TLS, DNS
    │   ├── SourceRefused           401, 403
    │   ├── NotPrometheus           an answer, but neither an API nor a metrics page
    │   ├── QueryRejected           the store understood and said no
    │   ├── QueryTooExpensive       the store ran out of its own limits
    │   └── NoData                  the window holds nothing
    ├── BundleError
    │   ├── BundleUnreadable        truncated, not an archive, path outside the folder
    │   └── BundleTooNew            a schema this version does not know
    ├── RecordsError                no field of a request log is known
    ├── SignalError
    │   ├── UnknownSignal
    │   └── UnitMismatch
    ├── TooFewPoints                a statistic has not enough points; becomes "not assessable"
    └── UsageError                  exit 2: the question itself is wrong

A message is one line: what happened, to what, what next.
"""

from __future__ import annotations

__all__ = [
    "BundleError",
    "BundleTooNew",
    "BundleUnreadable",
    "DiagError",
    "NoData",
    "NotPrometheus",
    "QueryRejected",
    "QueryTooExpensive",
    "RecordsError",
    "SignalError",
    "SourceError",
    "SourceRefused",
    "SourceUnreachable",
    "TooFewPoints",
    "UnitMismatch",
    "UnknownSignal",
    "UsageError",
]


class DiagError(Exception):
    """The job could not be done. ``str(error)`` is one line for the operator."""

    exit_code = 1

    def __init__(self, what: str, *, hint: str = "") -> None:
        """``what`` says what happened and to what; ``hint`` says what to do next."""
        self.what = what
        self.hint = hint
        super().__init__(f"{what}; {hint}" if hint else what)


class SourceError(DiagError):
    """A source did not deliver."""


class SourceUnreachable(SourceError):
    """Nobody answered."""


class SourceRefused(SourceError):
    """The server wants other credentials."""


class NotPrometheus(SourceError):
    """Something answered that is neither a Prometheus API nor a metrics page."""


class QueryRejected(SourceError):
    """The store understood the query and refused it."""


class QueryTooExpensive(SourceError):
    """The query exceeds the store's limits even after splitting."""


class NoData(SourceError):
    """The source works but holds nothing for this window."""


class BundleError(DiagError):
    """A bundle cannot be used."""


class BundleUnreadable(BundleError):
    """A bundle is damaged, or tries to write outside its folder."""


class BundleTooNew(BundleError):
    """A bundle was written by a newer version."""


class RecordsError(DiagError):
    """A request log has no field we know."""


class SignalError(DiagError):
    """A signal is used wrongly: a bug, or a plug-in's mistake."""


class UnknownSignal(SignalError):
    """No such name in the vocabulary."""


class UnitMismatch(SignalError):
    """An expression yields another unit than the vocabulary promises."""


class TooFewPoints(DiagError):
    """Not enough points for a statistic."""


class UsageError(DiagError):
    """The question is wrong: bad option, bad time, bad combination."""

    exit_code = 2
