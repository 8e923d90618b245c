"""The caches page."""
