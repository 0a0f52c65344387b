"""The hypotheses that no alert knows by a sign of their own, and why: only what users feel fires.

Every other hypothesis stands behind an alert outside ``rules/alerts/slo.yml``; a test holds both ways.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["WITHOUT_ALERT"]

WITHOUT_ALERT: Mapping[str, str] = {
    "cuda_graph_gap": "vLLM counts no step without a graph, so only slower tokens show: LLMInterTokenSlow",
    "runtime_pauses": "a halt of seconds is over between two scrapes, and no exporter counts halts: "
    "LLMInterTokenSlow, then the rhythm that triage finds",
    "spec_decode_collapse": "no acceptance is wrong by itself, it goes with prompts and draft model: "
    "LLMInterTokenSlow, then the comparison with before",
    "unknown": "what is left when nothing explains a symptom; the symptoms' alerts lead to it",
}
"""By id, in the order of the alphabet; alerts that are named are those through which it is felt."""
