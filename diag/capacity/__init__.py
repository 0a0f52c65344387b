"""KV-cache arithmetic: what a token, a session and an eviction cost, and what a pool can hold."""
