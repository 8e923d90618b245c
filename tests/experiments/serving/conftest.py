"""The small models of the cache designs' tests, one a way of keeping keys and values."""

from tests.caches.conftest import family, one_thread  # noqa: F401  fixtures
