"""Which device kvviz computes on: what there is, what was asked for, and why it is not the GPU."""

from dataclasses import asdict

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.base.settings import settings
from kvviz.device import environment
from kvviz.device.environment import Place, default_place, devices, environment_for, pick_device
from kvviz.device.memory import is_device_lost, is_out_of_memory
from kvviz.device.nvidia_card import Card
from kvviz.store.db.stored import of_document, of_started


@pytest.fixture(autouse=True)
def chosen_anew():
    """Forget the choice of this process before and after."""
    for cached in (default_place, settings):
        cached.cache_clear()
    yield
    for cached in (default_place, settings):
        cached.cache_clear()


@pytest.fixture
def cards(monkeypatch):
    """`cards(n)`: torch counts so many cards, on which a product fails or not."""

    def counted(count, why=""):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(environment, "_why_useless", lambda device: why and f"{device}: {why}")

    return counted


def test_a_worker_among_several_is_named_in_what_it_measures(monkeypatch):
    assert environment_for("sdpa", "cpu", "float32").worker is None
    monkeypatch.setattr(environment, "_called", None)
    environment.be_called("gpu-2/cpu:0")
    measured = {"environment": asdict(environment_for("sdpa", "cpu", "float32"))}
    assert of_document({**measured, "runs": []})["device"] == "gpu-2/cpu:0"
    environment.be_called("")
    measured = {"environment": asdict(environment_for("sdpa", "cpu", "float32"))}
    assert of_started(measured)["device"] == "cpu"


def test_what_there_is_and_what_is_refused(cards):
    cards(0)
    assert devices()[-1] == pick_device("auto") == "cpu"
    cards(1)
    assert devices()[0] == "cuda" and pick_device("cuda:0") == "cuda:0"
    cards(2)
    assert devices()[:2] == ["cuda:0", "cuda:1"] and pick_device("cuda") == "cuda"
    with pytest.raises(KvvizError, match="'cuda:99' is not on this machine; here there is cuda:0, cuda:1"):
        pick_device("cuda:99")


def test_the_first_card_that_works_is_the_default(cards):
    cards(2)
    assert default_place() == Place("cuda:0")


def test_a_card_that_fails_leaves_the_processor_and_the_reason(cards):
    cards(1, "no kernel image is available for execution on the device")
    place = default_place()
    assert place.device == "cpu" and "no kernel image" in place.why


def test_a_product_is_really_tried():
    assert environment._why_useless("cpu") == ""
    assert "cuda:7 does not work" in environment._why_useless("cuda:7")


def test_a_card_that_torch_can_not_use_is_told(cards, monkeypatch):
    cards(0)
    monkeypatch.setattr(environment, "seen_card", lambda: Card("NVIDIA T4", "470.1"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "driver 470.1 is too old" in default_place().why


def test_the_setting_decides(cards, monkeypatch):
    cards(2)
    monkeypatch.setenv("KVVIZ_DEVICE", "cuda:1")
    assert default_place() == Place("cuda:1")
    default_place.cache_clear(), settings.cache_clear()
    monkeypatch.setenv("KVVIZ_DEVICE", "mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(KvvizError, match="device 'mps' is not on this machine"):
        default_place()


def test_a_name_that_can_be_no_device_is_refused(monkeypatch):
    monkeypatch.setenv("KVVIZ_DEVICE", "gpu")
    with pytest.raises(KvvizError, match="KVVIZ_DEVICE is 'gpu'; it is auto, cpu, cuda, mps or a card by number"):
        settings()


@pytest.mark.parametrize(
    ("said", "full", "lost"),
    [
        ("CUDA out of memory. Tried to allocate 20.00 MiB", False, False),  # torch.OutOfMemoryError in practice
        ("CUDA error: out of memory", True, False),
        ("MPS backend out of memory (MPS allocated: 9 GB)", True, False),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True, False),
        ("CUDA error: device-side assert triggered", False, True),
        ("CUDA error: an illegal memory access was encountered", False, True),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`", False, True),
        ("Expected all tensors to be on the same device", False, False),
    ],
)
def test_full_or_lost(said, full, lost):
    error = RuntimeError(said)
    assert (is_out_of_memory(error), is_device_lost(error)) == (full, lost)
