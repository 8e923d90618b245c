"""What a graph's capture asks of CUDA, and in which order: a stub notes the calls, and nothing is computed on a GPU."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from kvviz.decoding.compiled import forward as forward_module
from kvviz.decoding.compiled import graph
from kvviz.decoding.compiled.forward import CompiledForward


@pytest.fixture
def noted(monkeypatch):
    """Stand in for torch.cuda; return the list of calls."""
    calls = []

    class Stream:
        def __init__(self, device):
            calls.append(("new stream", str(device)))

        def wait_stream(self, other):
            calls.append(("wait",))

    @contextlib.contextmanager
    def within(name, *about, **named):
        calls.append((name, *about, *named.values()))
        yield

    cuda = {
        "Stream": Stream,
        "current_stream": lambda device: SimpleNamespace(wait_stream=lambda other: calls.append(("wait",))),
        "stream": lambda stream: within("on stream", stream),
        "device": lambda device: within("on device", str(device)),
        "graph": lambda made, stream: within("capture", stream),
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: calls.append(("replay",))),
    }
    for name, stub in cuda.items():
        monkeypatch.setattr(torch.cuda, name, stub)
    for module in (graph, forward_module):
        monkeypatch.setattr(module, "replays", lambda caches: True)
    graph.capture_stream.cache_clear()
    yield calls
    graph.capture_stream.cache_clear()


def test_warm_up_and_capture_share_one_stream_for_all_runs(pair, noted):
    model = pair("qwen3").theirs
    for _ in range(2):
        CompiledForward(model, 16).prepare(1)
    names = [call[0] for call in noted]
    assert names.count("new stream") == 1, "cuBLAS keeps a workspace for each stream"
    streams = {call[1] for call in noted if call[0] in ("on stream", "capture")}
    assert len(streams) == 1 and names.count("capture") == 2
    assert names.index("on stream") < names.index("capture")


def test_an_earlier_graph_goes_before_memory_is_taken_for_the_next(pair, noted, monkeypatch):
    forward = CompiledForward(pair("qwen3").theirs, 16)
    forward.prepare(1)
    seen = []
    monkeypatch.setattr(forward_module, "SlotCache", lambda *size: seen.append(forward._step) or graph_cache(*size))
    graph_cache = graph.SlotCache
    forward.prepare(2)
    assert set(map(type, seen)) == {type(forward._read)}, "the old graph was still there"
