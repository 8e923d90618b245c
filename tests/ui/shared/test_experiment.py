"""The band over a recording says on what it was made, with as much as the recording holds."""

import pytest

from kvviz.ui.shared.experiment import recorded_words, tied


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


@pytest.mark.parametrize(
    ("words", "kept_together"),
    [
        ("8 tokens: about 21 s.", "8 tokens: about\u00a021\u00a0s."),
        ("about 1.5 min, then 1,200 ms", "about\u00a01.5\u00a0min, then 1,200\u00a0ms"),
        ("48 prompts, 8 steps, 5 h100", "48 prompts, 8 steps, 5 h100"),
    ],
)
def test_no_line_ends_between_a_duration_and_its_unit(words, kept_together):
    assert tied(words) == kept_together
