"""Arrays in, small records out. No domain words here; the only place that imports scipy."""
