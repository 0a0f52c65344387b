"""What ``diag check`` found, and its three outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diag.quantities import plain
from diag.renderers import RenderOptions

__all__ = ["SCHEMA", "Assessable", "Checked", "Lacking", "Present", "render_check"]

SCHEMA = "diag.check/1"


@dataclass(frozen=True, slots=True)
class Present:
    """A signal that is there: which producer defines it, and how many series carry data."""

    signal: str
    producer: str
    series: int


@dataclass(frozen=True, slots=True)
class Lacking:
    """Signals that are missing for one reason, and what would bring them."""

    signals: tuple[str, ...]
    how_to_get: str


@dataclass(frozen=True, slots=True)
class Assessable:
    """Whether hypothesis ``id`` can be judged on these sources; if not, what it needs."""

    id: str
    possible: bool
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """Coverage of one window of some sources."""

    sources: tuple[str, ...]
    window: str
    present: tuple[Present, ...]
    lacking: tuple[Lacking, ...]
    assessable: tuple[Assessable, ...]
    joins: tuple[str, ...]
    requests: int | None
    notes: tuple[str, ...]


def render_check(checked: Checked, format: str, options: RenderOptions) -> str:
    """``checked`` as ``console``, ``markdown`` or ``json``, ending in a newline."""
    if format == "json":
        import msgspec

        return (
            msgspec.json.format(
                msgspec.json.encode({"schema": SCHEMA, **_fields(checked)}), indent=2
            ).decode()
            + "\n"
        )
    if format == "markdown":
        return "\n".join(_markdown(checked)).strip() + "\n"
    return _console(checked, options)


def _fields(checked: Checked) -> dict[str, object]:
    return {name: getattr(checked, name) for name in Checked.__slots__}


Section = tuple[str, Sequence[tuple[str, str]]]


def _sections(checked: Checked) -> Iterator[Section]:
    able = [one.id for one in checked.assessable if one.possible]
    yield "Can be assessed", [(f"{len(able)} of {len(checked.assessable)}", ", ".join(able))]
    grouped: dict[tuple[str, ...], list[str]] = {}
    for one in checked.assessable:
        if not one.possible:
            grouped.setdefault(one.needs, []).append(one.id)
    yield "Cannot be assessed", [(", ".join(ids), "; ".join(needs)) for needs, ids in grouped.items()]
    yield "Seen", [*_seen(checked.present), ("request records", _records(checked.requests))]
    yield "Missing", [(_some(one.signals), one.how_to_get) for one in checked.lacking]
    yield "Which engine runs where", [("", plain(join)) for join in checked.joins]
    yield "Notes", [("", plain(note)) for note in checked.notes]


def _seen(present: Sequence[Present]) -> Iterator[tuple[str, str]]:
    for producer in dict.fromkeys(one.producer for one in present):
        own = [one for one in present if one.producer == producer]
        names = (one.signal if one.series == 1 else f"{one.signal} ×{one.series}" for one in own)
        yield f"{producer} ({len(own)})", ", ".join(names)


def _records(count: int | None) -> str:
    return f"{count:,}" if count else "none; --requests FILE would tell sessions and tenants apart"


def _some(signals: Sequence[str]) -> str:
    shown = ", ".join(signals[:4])
    return f"{shown} and {len(signals) - 4} more" if len(signals) > 4 else shown


def _headline(checked: Checked) -> str:
    able = sum(one.possible for one in checked.assessable)
    signals = len({one.signal for one in checked.present})
    return f"{signals} signals seen; {able} of {len(checked.assessable)} hypotheses can be assessed."


def _console(checked: Checked, options: RenderOptions) -> str:
    from diag.renderers.sheets import sheet

    context = "; ".join(filter(None, (checked.window, ", ".join(checked.sources))))
    return sheet(_headline(checked), context, list(_sections(checked)), options)


def _markdown(checked: Checked) -> Iterator[str]:
    yield f"# {_headline(checked)}"
    yield ""
    yield "; ".join(filter(None, (checked.window, ", ".join(checked.sources))))
    for title, rows in _sections(checked):
        if rows:
            yield from ("", f"## {title}", "")
            yield from (f"- **{about}**: {text}" if about else f"- {text}" for about, text in rows)
