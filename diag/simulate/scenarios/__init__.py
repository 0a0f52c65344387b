"""The catalogue of scenarios: one incident a file."""
