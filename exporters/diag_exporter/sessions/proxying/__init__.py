"""The streaming reverse proxy in pieces.

    options    what can be set, and what is refused
    headers    which headers go on, which requests are turned away
    asks       what is read from a request's body (counts, names, identity; never text)
    replies    what is read from an answer as it passes: first token, usage, failure
    passage    one request from arrival to its event
    handler    the data path (aiohttp)
    worker     a process with an event loop that listens
    wire       what a worker tells its parent, one JSON line each
    parent     starts workers, restarts them, collects what they tell

Only ``handler`` and ``worker`` import aiohttp: the optional extra ``[proxy]``.
"""
