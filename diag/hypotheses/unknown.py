"""A symptom that none of ours explains: an answer, not a failure."""

from diag.model import Card, Mitigation

CARD = Card(
    id="unknown",
    title="None of the known causes explains it",
    mechanism="There is a symptom, but no known mechanism accounts for most of it with the signals at hand.",
    signs=("a symptom, and more than half of its excess unexplained",),
    rules_out=("a known cause that explains most of the excess",),
    look_alikes={},
    mitigations=(
        Mitigation(
            "Drain one affected replica and keep it for a look; move its traffic to the others.", True
        ),
        Mitigation("Record now, before the data ages: diag record SOURCE -o incident.zip.", True),
    ),
    next_check="Start with the largest unexplained movers below, and add what could not be checked.",
)
