"""A finished run as exporters, logs and clients would have shown it."""
