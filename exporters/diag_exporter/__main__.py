"""``python -m diag_exporter``."""

from __future__ import annotations

from diag_exporter.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
