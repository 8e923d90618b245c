"""Points on the roofline, really measured on tiny models: which forwards are timed, their records, what is refused."""

import gc
import json
import time

import pytest
import torch

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.settings import Limits
from kvviz.cli import measure_here as headless
from kvviz.cli.main import app
from kvviz.cost.roofline import DECODE, PREFILL, WARMUP, Place
from kvviz.decoding.modes import Mode, mode_named
from kvviz.device import measure_ceilings as gauging
from kvviz.device.clock import synchroniser
from kvviz.experiments.inside.spec import AnatomySpec
from kvviz.experiments.roofline import run as roofing
from kvviz.experiments.roofline.run import _decoding, _measured, run
from kvviz.experiments.roofline.spec import RoofSpec, places
from kvviz.experiments.roofline.words import from_cache, text
from kvviz.server.scheduler import Scheduler
from tests.cost.test_roofline import CEILINGS

pytestmark = pytest.mark.slow  # they decode with real models

SPEC = RoofSpec("tiny-llama", tokens=64, batch=3)


@pytest.fixture(autouse=True)
def measured_before(monkeypatch):
    """Ceilings as if they had been kept: measuring them is another test's."""
    monkeypatch.setattr(roofing, "_ceilings", lambda device: CEILINGS)


@pytest.fixture(scope="module")
def records(bench):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roofing, "_ceilings", lambda device: CEILINGS)
        patch.setattr(gc, "collect", lambda *_: 0)  # before every pass: it would take half of the time
        return list(run(SPEC, bench()))


@pytest.fixture
def document(records):
    return records[-1]["document"]


def test_records_come_in_order_and_every_forward_is_a_point(records):
    kinds = [record["t"] for record in records]
    count = len(places(SPEC))
    assert kinds == ["look", "roof", *["point"] * count, *["profile"] * 6, "done"]
    points = [record for record in records if record["t"] == "point"]
    assert [(p["phase"], p["tokens"], p["batch"]) for p in points] == [
        (place.phase, place.tokens, place.batch) for place in places(SPEC)
    ]
    assert [(p["done"], p["of"]) for p in points] == [(i, count) for i in range(1, count + 1)]
    json.dumps(records, allow_nan=False)


def test_the_document_is_whole(document):
    for p in document["points"]:
        assert 0 < p["s_q1"] <= p["s"] <= p["s_q3"]
        assert p["flops_per_s"] == pytest.approx(p["flops"] / p["s"])
        assert p["bound"] in ("memory", "compute", "launch", "between") and p["roof_share"] > 0
    assert [(p["forward"], p["batch"]) for p in document["profiles"]] == [
        *(("prefill", 1), ("decode", 1), ("compiled step", 1), ("uncached step", 1)),
        *(("2 sequences", 2), ("3 sequences", 3)),
    ]
    for p in document["profiles"]:
        assert sum(p["classes"].values()) == pytest.approx(p["wall_s"])
        assert p["unprofiled_s"] > 0 and p["operations"] > 0
    eager, compiled = document["profiles"][1:3]
    assert compiled["classes"]["call"] > 0 == eager["classes"]["call"], "one call, whatever it does"
    assert compiled["operations"] < eager["operations"] / 8
    single = {p["phase"]: p["s"] for p in document["points"] if p["tokens"] == 64 and p["batch"] == 1}
    assert document["profiles"][0]["unprofiled_s"] == single[PREFILL]
    assert document["roof"] == {"read": 2e10, "flops": 9e10}
    assert [row["tokens"] for row in document["outweighs"]] == [16, 32, 64]
    assert "The ridge lies at **4.5 FLOP/B**" in " ".join(document["sentences"])
    assert "The ridge lies at 4.5 FLOP/B" in text(document)  # a terminal knows no Markdown


def test_a_compiled_step_above_the_slanted_roof_is_explained_by_weights_in_the_chips_cache(document):
    step = next(p for p in document["points"] if (p["phase"], p["tokens"], p["batch"]) == (DECODE, 64, 1))
    at_the_roof = step["bytes"] / document["roof"]["read"]

    def said(seconds, fast):
        profiles = [{**p, "unprofiled_s": seconds} for p in document["profiles"]]
        return from_cache({**document, "profiles": profiles, "fast_memory_bytes": fast})

    assert "at 2 times the rate of the slanted roof" in said(at_the_roof / 2, step["weight_bytes"])
    assert said(at_the_roof / 2, step["weight_bytes"] - 1) == said(at_the_roof / 2, None) == ""
    assert said(at_the_roof * 2, step["weight_bytes"]) == ""


def test_reading_from_the_chips_cache_is_measured_where_a_step_fits(document, monkeypatch):
    asked = []
    monkeypatch.setattr(roofing, "near_read_rate", lambda size: asked.append(size) or 1e9)
    most = max(p["bytes"] for p in document["points"] if p["phase"] == "decode" and p["batch"] == 1)
    assert [roofing._near_read("cpu", document["points"], fast) for fast in (most, most - 1)] == [1e9, None]
    assert roofing._near_read("cuda", document["points"], most) is None and asked == [most]


def test_a_longer_prompt_and_a_batch_do_more_with_each_byte(document):
    prefills = {p["tokens"]: p for p in document["points"] if p["phase"] == PREFILL}
    steps = {(p["tokens"], p["batch"]): p for p in document["points"] if p["phase"] == DECODE}
    assert prefills[64]["intensity"] > prefills[16]["intensity"]
    assert steps[64, 3]["intensity"] > steps[64, 1]["intensity"]  # the weights are read once for three
    assert all(step["tokens_per_s"] == pytest.approx(batch / step["s"]) for (_, batch), step in steps.items())


class Spy:
    """A mode's forward that notes what it was given and how long its cache then was."""

    def __init__(self, mode: Mode) -> None:
        self.mode, self.seen = mode, []

    def open(self, model, capacity):
        forward = self.mode.open(model, capacity)

        def spied(ids, new):
            logits, cache = forward(ids, new)
            self.seen.append((tuple(new.shape), cache.get_seq_length(), logits.detach().clone()))
            return logits, cache

        return spied


@pytest.mark.parametrize("place", [Place(DECODE, 16), Place(DECODE, 64, 3)])
def test_the_timed_step_in_the_middle_makes_the_context_of_its_place(load, bench, monkeypatch, place):
    spy = Spy(mode_named("cached"))
    monkeypatch.setattr(roofing, "mode_named", lambda name: spy)
    loaded, prompt, count = load("tiny-llama"), torch.arange(64)[None], 5
    assert len(_measured(loaded, place, prompt, count, bench())) == count
    steps = spy.seen[1 + WARMUP :]
    assert [shape for shape, _, _ in steps] == [(place.batch, 1)] * count
    assert [length for _, length, _ in steps][count // 2] == place.tokens
    assert spy.seen[0][0][0] == 1  # one sequence was read, and its cache repeated
    for _, _, logits in steps:
        torch.testing.assert_close(logits, logits[:1].expand_as(logits))


def test_a_batch_of_copies_decodes_what_one_sequence_does(load, monkeypatch):
    found = []
    for batch in (1, 3):
        spy = Spy(mode_named("cached"))
        monkeypatch.setattr(roofing, "mode_named", lambda name, spy=spy: spy)
        list(_decoding(load("tiny-llama"), Place(DECODE, 32, batch), torch.arange(32)[None], 3))
        found.append([logits[0] for _, _, logits in spy.seen])
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


def test_prefills_each_begin_with_an_empty_cache(load, bench):
    loaded, prompt = load("tiny-llama"), torch.arange(64)[None]
    assert len(_measured(loaded, Place(PREFILL, 32), prompt, 3, bench())) == 3


def test_it_stops_between_two_forwards(bench):
    asked = []

    def should_stop():
        asked.append(1)
        return len(asked) > 5

    with pytest.raises(Stopped):
        list(run(SPEC, bench(should_stop=should_stop)))
    assert len(asked) == 6


def test_a_context_beyond_the_models_positions_is_refused(bench):
    with pytest.raises(KvvizError, match="this model has 1,024 positions"):
        list(run(RoofSpec("tiny-gpt2", tokens=1020), bench()))


def test_a_precision_without_a_ceiling_is_refused(bench):
    with pytest.raises(KvvizError, match="no matrix product in bfloat16"):
        list(run(RoofSpec("tiny-llama", tokens=64, dtype="bfloat16"), bench()))


def test_ceilings_that_cannot_be_kept_are_measured_all_the_same(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(gauging, "kept_for", lambda machine: None)
    for module in (gauging, roofing):
        monkeypatch.setattr(module, "measure_ceilings", lambda device: CEILINGS)

    def full(found):
        raise KvvizError("the disk is full")

    monkeypatch.setattr(gauging, "keep", full)
    assert roofing._ceilings("cpu") is CEILINGS


def test_an_unprofiled_call_is_timed():
    assert roofing._alone(lambda: time.sleep(0.002), synchroniser("cpu"), 3) >= 0.002


def test_the_command_prints_the_document(records, monkeypatch, capsys):
    monkeypatch.setattr(headless, "settle", lambda: None)
    monkeypatch.setattr(roofing, "run", lambda spec, bench: iter(records) if spec == SPEC else iter(()))
    app(["roofline", "tiny-llama", "--tokens", "64", "--batch", "3", "--json"], standalone_mode=False)
    said = capsys.readouterr()
    assert json.loads(said.out) == json.loads(json.dumps(records[-1]["document"]))
    assert "6 of 10, decode at 64 tokens x 1" in said.err


def test_the_command_refuses_in_a_sentence():
    with pytest.raises(KvvizError, match="tokens is 3"):
        app(["roofline", "tiny-llama", "--tokens", "3"], standalone_mode=False)


# --- through the scheduler ---------------------------------------------------------------------------------------


def test_the_same_measurement_serves_all_until_somebody_asks_again(scheduler_without_worker):
    scheduler = scheduler_without_worker
    first = scheduler.submit(SPEC, "one browser")
    assert scheduler.submit(SPEC, "another", again=True) == first  # it is under way
    scheduler.record(first, {"t": "done", "document": {"points": []}})
    assert scheduler.submit(SPEC, "another") == first
    assert scheduler.get(first).document == {"points": []}
    assert scheduler.submit(SPEC, "another", again=True) != first


def test_its_time_is_foreseen_and_not_learnt_from_other_looks(scheduler_without_worker):
    scheduler = scheduler_without_worker
    one, two = (scheduler.submit(RoofSpec("gpt2", tokens=tokens)) for tokens in (64, 512))
    assert 0 < scheduler.get(one).countdown.left(0.0) < scheduler.get(two).countdown.left(0.0)
    scheduler.record(one, {"t": "look"})
    scheduler.record(one, {"t": "done", "document": {}})
    assert scheduler.get(scheduler.submit(AnatomySpec("tiny-qwen3", "hello"), "two")).countdown.whole is None


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (RoofSpec("tiny-llama", tokens=512), "512 prompt tokens; this server allows at most 100"),
        (RoofSpec("tiny-llama", tokens=64, batch=16), "16 sequences at a time"),
        (RoofSpec("t5-small", tokens=64, batch=1), "reads its text with an encoder"),
        (RoofSpec("nothing-here", tokens=64, batch=1), "nothing-here"),
    ],
)
def test_what_a_server_does_not_allow_is_refused_before_it_is_queued(spec, said):
    scheduler = Scheduler(limits=Limits(prompt_tokens=100, batch=4))
    with pytest.raises(KvvizError, match=said):
        scheduler.submit(spec)
    assert scheduler.jobs() == []
