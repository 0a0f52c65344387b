"""What can be observed, and the small language in which each engine says how.

``vocabulary`` holds the canonical signals, ``algebra`` the expressions. The two back ends,
``promql`` (text for a store) and ``frame`` (values from raw samples), are imported by the sources
alone, so they are not re-exported here.
"""

from diag.signals.vocabulary import SIGNALS, Signal, Worse, signal

__all__ = ["SIGNALS", "Signal", "Worse", "signal"]
