"""Where events come from: logs that are followed, spans that are sent; every feed ends in a sink."""
