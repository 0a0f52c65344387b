"""Name the root cause when a self-hosted LLM service gets slow and no alert says why."""

__version__ = "0.1.0"
