"""The families of tests/scratch, and the ways in which a single step can be done."""

from tests.decoding.scratch.conftest import one_thread, pair  # noqa: F401  fixtures
