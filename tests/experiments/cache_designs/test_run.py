"""Cache designs raced on a tiny model: each figure of the document worked out a second time, by another way."""

import gc
import json
import time
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div

from kvviz.base.errors import KvvizError, Stopped
from kvviz.caches.designs import DESIGNS
from kvviz.caches.hf_layer import DesignCache
from kvviz.cli import measure_here as headless
from kvviz.cli.main import app
from kvviz.experiments.cache_designs import run as racing
from kvviz.experiments.cache_designs.run import pictured, with_distinct_next_tokens
from kvviz.experiments.cache_designs.spec import RACEABLE, CachesSpec
from kvviz.experiments.cache_designs.words import rows, run_of, sentences, text
from kvviz.experiments.eta import seconds_of
from kvviz.experiments.registry import read_spec
from kvviz.models.catalog.rows import heldout
from tools.heldout import heldout as written

pytestmark = pytest.mark.slow  # they decode with real models

# Those that evict share all but their choice with h2o.
LEFT_OUT = {"offloaded", *(name for name, design in DESIGNS.items() if design.extra and name != "h2o")}
HERE = tuple(name for name in RACEABLE if name not in LEFT_OUT)
MODEL, PROMPT, NEW, BATCH, READ = "tiny-llama", "The same beginning of all, some tokens long.", 24, 3, 72
SPEC = CachesSpec(MODEL, HERE, prompt=PROMPT, new_tokens=NEW, batch=BATCH, repeats=1)
PICTURED = [name for name in HERE if name in DESIGNS]


@pytest.fixture(scope="module")
def records(bench):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(racing, "TEXT_TOKENS", READ)
        patch.setattr(gc, "collect", lambda *_: 0)  # before every pass: it would take half of the time
        return list(racing.run(SPEC, bench()))


@pytest.fixture(scope="module")
def found(records):
    return records[-1]["document"]


@pytest.fixture(scope="module")
def token_bytes(load):
    """Of one sequence, over all layers: K and V of every KV head, in float32."""
    config = load(MODEL).model.config
    return config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim * 4


def test_records_tell_how_far_it_is_and_end_with_the_document(records):
    parts = [record["part"] for record in records[1:-1]]
    assert records[0]["t"] == "look" and records[-1]["t"] == "done"
    assert list(dict.fromkeys(parts)) == ["proof", "books", "clock", "text"]
    assert parts.count("proof") == NEW and parts.count("books") == len(HERE)
    assert parts.count("clock") == len(SPEC.modes)
    assert all(0 <= record["done"] <= record["of"] for record in records[1:-1])
    json.dumps(records, allow_nan=False)


def test_sequences_share_the_prompt_and_then_part(load, found):
    loaded = load(MODEL)
    prompt = torch.tensor([loaded.codec.encode(PROMPT)] * BATCH)
    rows_ = with_distinct_next_tokens(loaded, prompt)
    with torch.inference_mode():
        likeliest = loaded.model(prompt[:1]).logits[0, -1].argsort(descending=True)[:BATCH]
    assert torch.equal(rows_[:, :-1], prompt) and rows_[:, -1].tolist() == likeliest.tolist()
    assert torch.equal(with_distinct_next_tokens(loaded, prompt[:1]), prompt[:1])
    assert (found["shared_tokens"], found["prompt_tokens"]) == (prompt.shape[1], prompt.shape[1] + 1)


def test_exact_designs_choose_the_same_tokens_and_lose_nothing(found):
    for run in found["runs"]:
        if run["exact"]:
            assert run["identical"] and run["repeatable"]
            assert run["mode"] == "uncached" or max(run["quality"]["kl"]) < 1e-9
    assert sentences(found)[0].endswith("the same tokens as without a cache, and KL 0 at every position of the text.")


def test_where_tokens_first_differ_is_where_they_first_differ(found):
    reference = run_of(found, "uncached")["token_ids"]
    for run in found["runs"]:
        unlike = [any(own[i] != ref[i] for own, ref in zip(run["token_ids"], reference, strict=True))
                  for i in range(NEW)]  # fmt: skip
        assert run["first_divergence"] == (unlike.index(True) if any(unlike) else None)
        assert (run["divergence_margin"] is None) == (not any(unlike))


@pytest.mark.parametrize("mode", ["concat", "paged", "sinks", "int4"])
def test_kl_and_perplexity_by_torchs_own_functions(load, found, mode):
    loaded = load(MODEL)
    ids = torch.tensor([loaded.codec.encode(heldout())[:READ]])
    cache = DesignCache(DESIGNS[mode], loaded.model.config, capacity=READ)
    with torch.inference_mode():
        whole = loaded.model(ids).logits[0].double().log_softmax(-1)  # one forward, no cache
        steps = [loaded.model(ids[:, i : i + 1], past_key_values=cache).logits[0, -1] for i in range(READ)]
    own = torch.stack(steps).double().log_softmax(-1)
    kl = kl_div(own, whole, reduction="none", log_target=True).sum(-1)
    quality = run_of(found, mode)["quality"]
    torch.testing.assert_close(torch.tensor(quality["kl"], dtype=torch.float64), kl, rtol=1e-2, atol=1e-9)
    assert quality["perplexity"] == pytest.approx(cross_entropy(own[:-1], ids[0, 1:]).exp().item(), rel=1e-6)
    assert quality["nbytes"] == sum(one.nbytes for one in cache.own)
    assert (max(quality["kl"]) > 1e-9) != DESIGNS[mode].exact


def test_the_window_with_sinks_loses_nothing_before_it_is_full(found):
    kl = run_of(found, "sinks")["quality"]["kl"]
    assert max(kl[:64]) < 1e-9 < max(kl[64:])


def test_bytes_held_allocated_copied_and_gathered_by_hand(found, token_bytes):
    before = found["prompt_tokens"]
    lengths = [before + i for i in range(NEW)]
    each = BATCH * token_bytes
    concat, prealloc = (run_of(found, name) for name in ("concat", "prealloc"))
    assert concat["cache_bytes"] == concat["books"]["copied"] == [n * each for n in lengths]
    assert prealloc["books"]["copied"] == [before * each] + [each] * (NEW - 1)
    assert set(prealloc["allocated_bytes"]) == {(before + NEW) * each}
    paged, sinks = run_of(found, "paged"), run_of(found, "sinks")
    assert paged["allocated_bytes"] == [-(-n // 16) * 16 * each for n in lengths]
    assert paged["books"]["gathered"] == [0] + [n * each for n in lengths[1:]]
    assert sinks["cache_bytes"] == [min(n, 64) * each for n in lengths]
    assert run_of(found, "cached")["books"] is None and run_of(found, "static")["books"] is None


def test_shared_beginnings_are_held_once(found, token_bytes):
    blocks = (found["prompt_tokens"] - 1) // 16  # the last token of the prompt is each sequence's own
    saved = (BATCH - 1) * blocks * 16 * token_bytes
    assert blocks and run_of(found, "paged")["cache_bytes"][-1] - run_of(found, "prefix")["cache_bytes"][-1] == saved
    last = run_of(found, "prefix")["books"]["pictures"][-1]
    assert [block["refs"] for block in last["blocks"] if block["refs"] > 1] == [BATCH] * blocks
    assert len({tuple(table["blocks"][:blocks]) for table in last["tables"]}) == 1


@pytest.mark.parametrize("mode", PICTURED)
def test_pictures_agree_with_the_bytes(found, token_bytes, mode):
    run = run_of(found, mode)
    layers = run["books"]["layers"]
    one = BATCH * token_bytes // layers  # a token of all sequences in one layer
    assert [picture["step"] for picture in run["books"]["pictures"]] == list(range(NEW))
    for i, picture in enumerate(run["books"]["pictures"]):
        assert picture["nbytes"] * layers == run["cache_bytes"][i]
        assert picture["allocated"] * layers == run["allocated_bytes"][i]
        if picture["kind"] == "buffer":
            assert (picture["slots"] * one, picture["used"] * one) == (picture["allocated"], picture["nbytes"])
            assert picture["copied_tokens"] * one == picture["copied"]
        elif picture["kind"] == "ring":
            there = [p for p in picture["positions"] if p is not None]
            assert len(there) * one == picture["nbytes"] and max(there) == picture["seen"] - 1
        elif picture["kind"] == "codes":
            parts = picture["codes_bytes"] + picture["scale_bytes"] + picture["residual_bytes"]
            assert parts == picture["nbytes"]
            assert picture["groups"] * picture["group"] + picture["residual"] == picture["held"]
        elif picture["kind"] == "evicting":
            assert len(picture["positions"]) == picture["held"] == min(picture["seen"], 64)
            heads = (picture["nbytes"] - picture["held"] * one) / (8 * BATCH * picture["held"])
            assert heads == 2, "a position and a score with each token, 8 bytes, in each KV head"
        else:
            assert sum(block["filled"] for block in picture["blocks"]) * one // BATCH == picture["nbytes"]
            assert len(picture["blocks"]) * 16 * one // BATCH == picture["allocated"]
            standing = [block for table in picture["tables"] for block in table["blocks"]]
            assert [block["refs"] for block in picture["blocks"]] == [
                standing.count(b["id"]) for b in picture["blocks"]
            ]


def test_the_clock_gives_each_step_a_median_and_its_quartiles(found):
    for run in found["runs"]:
        assert len(run["step_s"]) == NEW
        bands = zip(run["step_s_q1"], run["step_s"], run["step_s_q3"], strict=True)
        assert all(0 < low <= middle <= high for low, middle, high in bands)


def test_rows_and_words_are_of_the_document(found):
    every = {row["mode"]: row for row in rows(found)}
    assert list(every) == list(SPEC.modes) and all(row["slow"].endswith(".") for row in every.values())
    assert every["prealloc"]["wasted"] == every["prealloc"]["allocated"] - every["prealloc"]["held"]
    assert every["sinks"]["share"] == pytest.approx(64 / (found["prompt_tokens"] + NEW - 1))
    said = " ".join(sentences(found))
    assert "**Window with sinks**, lossy: holds" in said and "into the cache" in said
    assert "**" not in text(found) and "sinks" in text(found)


def test_many_steps_are_drawn_evenly():
    assert pictured(5) == [0, 1, 2, 3, 4]
    some = pictured(192)
    assert len(some) == racing.MOST_PICTURES and (some[0], some[-1]) == (0, 191)
    assert {b - a for a, b in pairwise(some)} <= {2, 3}


def test_a_model_that_can_not_read_the_story_reads_what_it_wrote(load, bench):
    class Deaf:
        note = ""

        def __init__(self, codec):
            self.codec, self.decode = codec, codec.decode

        def encode(self, text):
            if text == heldout():
                raise KvvizError("no such letter")
            return self.codec.encode(text)

    loaded = load(MODEL)

    class Deafened:
        def get(self, work, tell, may_split):
            return replace(loaded, codec=Deaf(loaded.codec))

    spec = replace(SPEC, designs=("sinks",), new_tokens=4, repeats=1)
    document = list(racing.run(spec, bench(models=Deafened())))[-1]["document"]
    ids = [*loaded.codec.encode(PROMPT), *(document["runs"][1]["token_ids"][0])]
    assert document["text"] == {"source": "own", "tokens": len(ids), "text": loaded.codec.decode(ids)}
    assert len(document["runs"][1]["quality"]["kl"]) == len(ids)


def test_the_story_is_the_grammars_and_long_enough(load):
    assert written()["text"] == heldout()
    assert len(load("mini-gpt2").codec.encode(heldout())) >= racing.TEXT_TOKENS


@pytest.mark.parametrize("after", [1, 50, 200])
def test_it_stops_where_it_is_told_to(bench, monkeypatch, after):
    monkeypatch.setattr(racing, "TEXT_TOKENS", 20)
    asked = []

    def should_stop():
        asked.append(1)
        return len(asked) > after

    with pytest.raises(Stopped):
        list(racing.run(replace(SPEC, designs=("concat", "sinks"), new_tokens=20), bench(should_stop=should_stop)))
    assert len(asked) == after + 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"designs": ()}, "choose at least one cache design of concat"),
        ({"designs": ("paged", "cached")}, "no cache design 'cached' to be compared; there are concat, "),
        ({"designs": ("paged", "paged")}, "each named once"),
        ({"new_tokens": 193}, "from 2 to 192"),
        ({"new_tokens": 1}, "from 2 to 192"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"batch": 0}, "batch is 0"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(fields, said):
    with pytest.raises(KvvizError, match=said):
        replace(SPEC, **fields)


def test_it_is_read_back_as_it_was_written():
    again = read_spec("caches", json.loads(json.dumps(SPEC.to_dict())))
    assert again == SPEC and hash(again) == hash(SPEC)
    with pytest.raises(KvvizError, match="a comparison of cache designs has no field colour"):
        read_spec("caches", {**SPEC.to_dict(), "colour": 1})


@pytest.mark.parametrize(
    ("model", "fields", "said"),
    [
        ("tiny-gpt2", {"prompt": "a" * 1_000}, "this model has 1,024 positions"),
        (MODEL, {"designs": ("offloaded",)}, "take cached, or a machine with a GPU"),
    ],
)
def test_what_can_not_be_raced_is_refused_by_the_measuring_process(bench, model, fields, said):
    with pytest.raises(KvvizError, match=said):
        next(racing.run(replace(SPEC, model=model, **fields), bench()))


# --- through the scheduler and the command line ------------------------------------------------------------------


def test_the_same_race_serves_all_and_what_can_not_be_is_refused_before_it_is_queued(scheduler_without_worker):
    scheduler = scheduler_without_worker
    first = scheduler.submit(SPEC, "one browser")
    assert scheduler.submit(SPEC, "another") == first
    assert scheduler.submit(replace(SPEC, designs=("paged",)), "another") != first
    with pytest.raises(KvvizError, match="window of 16 tokens of its own, and sinks is for layers"):
        scheduler.submit(replace(SPEC, model="tiny-mistral", designs=("sinks",)))


def test_its_time_is_foreseen_from_the_rates(scheduler_without_worker):
    few, many = (seconds_of(replace(SPEC, model="gpt2", repeats=n), scheduler_without_worker.device) for n in (1, 5))
    assert 0 < few < many < 5 * few
    work = scheduler_without_worker.submit(replace(SPEC, model="gpt2", repeats=2))
    assert scheduler_without_worker.get(work).countdown.left(time.monotonic()) > few


def test_the_command_prints_the_document(monkeypatch, capsys):
    monkeypatch.setattr(headless, "settle", lambda: None)
    monkeypatch.setattr(racing, "TEXT_TOKENS", 20)
    said = ["caches", MODEL, "--designs", "paged,sinks", "--new-tokens", "4", "--repeats", "1", "--device", "cpu"]
    app([*said, "--json"], standalone_mode=False)
    out = capsys.readouterr()
    document = json.loads(out.out)
    assert [run["mode"] for run in document["runs"]] == ["uncached", "cached", "paged", "sinks"]
    assert "now the tokens" in out.err and "now the quality" in out.err


def test_the_command_refuses_in_a_sentence():
    with pytest.raises(KvvizError, match="no cache design 'x' to be compared"):
        app(["caches", MODEL, "--designs", "paged,x"], standalone_mode=False)
