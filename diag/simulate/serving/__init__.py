"""The serving engine simulator: a plan in, the truth of its run out."""

from diag.simulate.serving.service import run

__all__ = ["run"]
