"""The band over a recording says on what it was made, with as much as the recording holds."""

import pytest

from kvviz.ui.shared.experiment import recorded_words


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"device": "cpu", "device_name": "a processor", "threads": 1}, "a processor (1 thread)"),
        ({"device": "cpu", "device_name": "a processor", "threads": 2}, "a processor (2 threads)"),
        ({"device": "cpu", "device_name": "a processor"}, "a processor"),
        ({"device_name": "a server"}, "a server"),
        ({"device": "cuda:0", "device_name": "a GPU", "threads": 1}, "a GPU"),
    ],
)
def test_a_recording_names_its_device_and_a_processors_threads(environment, said):
    kept = {"made": "2026-01-02", "document": {"title": "a model", "environment": environment}}
    assert f"of a model on {said}, made on 2026-01-02" in recorded_words(kept, "Run")
