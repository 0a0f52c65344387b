"""A hypothesis' card, and the list of all, in three outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diag.model import Card
from diag.renderers import RenderOptions

__all__ = ["page_as_json", "render_card", "render_list"]

Section = tuple[str, Sequence[tuple[str, str]]]


def render_card(card: Card, format: str, options: RenderOptions, page: str = "") -> str:
    """``card`` in full, ending in a newline; JSON also holds ``page``, the text of its runbook."""
    if format == "json":
        return _json({**_fields(card), "page": page} if page else _fields(card))
    title = f"{card.id}: {card.title}"
    if format == "markdown":
        return "\n".join(_markdown(f"`{card.id}`: {card.title}", card.mechanism, _sections(card))) + "\n"
    from diag.renderers.sheets import sheet

    return sheet(title, card.mechanism, list(_sections(card)), options)


def render_list(cards: Sequence[Card], format: str, options: RenderOptions) -> str:
    """Ids and titles, one a line."""
    if format == "json":
        return _json([{"id": card.id, "title": card.title} for card in cards])
    if format == "markdown":
        return "".join(f"- `{card.id}`: {card.title}\n" for card in cards)
    width = max((len(card.id) for card in cards), default=0)
    room = max(20, options.width - width - 2)
    return "".join(f"{card.id:<{width}}  {_cut(card.title, room)}\n" for card in cards)


def page_as_json(id: str, page: str) -> str:
    """A symptom, which has a runbook and no card."""
    return _json({"id": id, "runbook": f"runbooks/{id}.md", "page": page})


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _sections(card: Card) -> Iterator[Section]:
    yield "Signs", [("", sign) for sign in card.signs]
    yield "What rules it out", [("", entry) for entry in card.rules_out]
    yield "Look-alikes", list(card.look_alikes.items())
    ordered = sorted(card.mitigations, key=lambda action: not action.safe)
    yield (
        "What to do, safe things first",
        [("safe" if one.safe else "with care", one.text) for one in ordered],
    )
    if card.chain:
        yield "Chain from cause to symptom", [("", " → ".join(card.chain))]
    if card.leads_to:
        yield "Can bring about", [("", ", ".join(card.leads_to))]
    if card.next_check:
        yield "Next measurement", [("", card.next_check)]
    yield "Runbook", [("", f"runbooks/{card.id}.md")]


def _markdown(title: str, mechanism: str, sections: Iterator[Section]) -> Iterator[str]:
    yield f"# {title}"
    yield ""
    yield mechanism
    for heading, rows in sections:
        if rows:
            yield from ("", f"## {heading}", "")
            yield from (f"- {about}: {text}" if about else f"- {text}" for about, text in rows)


def _fields(card: Card) -> dict[str, object]:
    return {
        "id": card.id,
        "title": card.title,
        "mechanism": card.mechanism,
        "signs": card.signs,
        "rules_out": card.rules_out,
        "look_alikes": dict(card.look_alikes),
        "mitigations": [{"text": one.text, "safe": one.safe} for one in card.mitigations],
        "next_check": card.next_check,
        "chain": card.chain,
        "leads_to": card.leads_to,
        "runbook": f"runbooks/{card.id}.md",
    }


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
