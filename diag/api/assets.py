"""``diag assets`` for programs: what ships, a copy of it as files, and what a store would see of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from diag.errors import UsageError

if TYPE_CHECKING:
    from diag.assets.checking import Checked
    from diag.assets.export import Exported
    from diag.assets.inventory import Asset, Choice
    from diag.model import Window
    from diag.sources.access import Access

__all__ = ["check", "export", "shipped"]

Progress = Callable[[str], None]


def shipped(choice: Choice) -> tuple[Asset, ...]:
    """What ships and fits ``choice``, by kind and path."""
    from diag.assets.inventory import inventory

    return tuple(one for one in inventory() if choice.fits(one.needs))


def export(folder: str | Path, choice: Choice, *, force: bool = False) -> Exported:
    """Copy what fits ``choice`` into ``folder``. Raises ``DiagError`` where a file of somebody else is in
    the way (unless ``force``) or nothing can be written."""
    from diag.assets.export import export as write

    return write(shipped(choice), Path(folder), force=force)


def check(
    url: str, window: Window, *, access: Access | None = None, progress: Progress | None = None
) -> Checked:
    """What our rules and panels would see of the store at ``url``, evaluated at the end of ``window``;
    a series is there if it has a sample in it.

    Raises ``UsageError`` for what is no URL, and the ``SourceError`` leaves."""
    from diag.assets.checking import LABELS, Checked, expectations, loaded, sights
    from diag.assets.holdings import Holdings, elsewhere
    from diag.sources.access import Client
    from diag.sources.opening import store_address
    from diag.sources.promapi import Api
    from diag.sources.promstate import StoreState

    if not url.startswith(("http://", "https://")):
        raise UsageError(
            f"{url} is no address of a store", hint="give http://… of the Prometheus that runs rules"
        )
    client = Client(store_address(url), access)
    api, state = Api(client), StoreState(client)
    try:
        api.open()
        _tell(progress, "looking at metrics")
        holdings = Holdings(api, state.names(window), window)
        producers = tuple(holdings.producers())
        _tell(progress, "evaluating rules and panels")
        found = sights(expectations(), holdings)
        rules, labels = state.rules(), state.external_labels()
        hints = () if producers else elsewhere(url, window, access)
        return Checked(
            url=client.url,
            start=window.start,
            end=window.end,
            producers=producers,
            sights=found,
            loaded=None if rules is None else loaded(rules),
            labels_missing=None if labels is None else tuple(one for one in LABELS if not labels.get(one)),
            notes=(*hints, *api.warnings),
        )
    finally:
        api.close()


def _tell(progress: Progress | None, text: str) -> None:
    if progress is not None:
        progress(text)
