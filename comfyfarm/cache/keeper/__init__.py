"""Keeps the cache within its bounds: what is used, pinned, evicted, verified."""
