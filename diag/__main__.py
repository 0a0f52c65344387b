"""``python -m diag``."""

from __future__ import annotations

from diag.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
