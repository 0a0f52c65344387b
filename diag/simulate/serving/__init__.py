"""The serving simulator: a plan in, what happened out."""
