"""One contract for every design, under every kind of model: right tokens, true bytes, nothing left behind."""

import itertools

import pytest
import torch

from kvviz.base.errors import KvvizError
from kvviz.caches.designs import DESIGNS
from kvviz.caches.formula import kept_bytes
from kvviz.caches.hf_layer import DesignCache
from kvviz.decoding.modes import reading_new_tokens
from kvviz.decoding.read_cache import LiveTensors, layer_states
from tests.caches.conftest import FAMILIES, prompt_of

PROMPT, NEW = 75, 14
PIECES = {"whole": (PROMPT,), "uneven": (23, 1, 41, 10)}  # a prefill in one piece, or in several
BATCHES = {"whole": 3, "uneven": 1}
EVICTING = {row.name for row in DESIGNS.values() if row.budget}
CODES = {"int8", "int4", "int2", "rotated2"}
ONLY_WINDOWS = {"mistral": {*EVICTING, *CODES, "offloaded"}, "mistral, wide": {*EVICTING, "offloaded"}}


def decode_with(model, cache, prompt, pieces):
    """Tokens (B, NEW) and the last logits of a decode whose prefill comes in pieces."""
    forward, ids, chosen = reading_new_tokens(model, cache, cache.note, cache.watching(model)), prompt[:, :0], []
    for new in prompt.split(pieces, dim=1):
        ids = torch.cat([ids, new], dim=1)
        logits, _ = forward(ids, new)
    for _ in range(NEW):
        chosen.append(logits.argmax(-1, keepdim=True))
        if len(chosen) < NEW:
            ids = torch.cat([ids, chosen[-1]], dim=1)
            logits, _ = forward(ids, chosen[-1])
    return torch.cat(chosen, dim=1), logits


@pytest.fixture(scope="module")
def expected(family):
    """`expected("llama", 3)`: what that model writes without any cache, and its last logits."""
    known = {}

    def get(name, batch):
        if (name, batch) not in known:
            model, _ = family(name)
            ids = prompt_of(batch, PROMPT)
            with torch.inference_mode():
                for _ in range(NEW):
                    logits = model(input_ids=ids, use_cache=False).logits[:, -1]
                    ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
            known[name, batch] = ids[:, PROMPT:], logits
        return known[name, batch]

    return get


def tensors_below(thing, found):
    """Every tensor that an object holds, however deep."""
    if isinstance(thing, torch.Tensor):
        found[id(thing)] = thing
    elif isinstance(thing, dict):
        for item in thing.values():
            tensors_below(item, found)
    elif isinstance(thing, list | tuple):
        for item in thing:
            tensors_below(item, found)
    elif type(thing).__module__.startswith("kvviz.caches"):
        tensors_below(vars(thing), found)
    return found


def storages_below(own):
    """Bytes of the storages of every tensor that an object holds."""
    storages = (tensor.untyped_storage() for tensor in tensors_below(own, {}).values())
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def test_designs_for_layers_that_attend_to_everything_refuse_models_with_windows_alone(family):
    for name, refusing in ONLY_WINDOWS.items():
        layers = family(name)[1].layers
        assert {row.name for row in DESIGNS.values() if not any(row.takes(la.window) for la in layers)} == refusing


def contract_cases():
    """All; a short run takes two of each design that evicts, because these share most of their code, and of the others
    every second one, like the fields of one colour of a chessboard."""
    short = {("llama", "whole"), ("deepseek_v3", "uneven")}
    for (row, name), (column, design), pieces in itertools.product(enumerate(FAMILIES), enumerate(DESIGNS), PIECES):
        chosen = (name, pieces) in short if DESIGNS[design].extra else (row + column) % 2 == 0
        yield pytest.param(name, design, pieces, marks=[] if chosen else [pytest.mark.long])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "design", "pieces"), list(contract_cases()))
def test_the_contract(family, expected, name, design, pieces):
    (model, spec), row, batch = family(name), DESIGNS[design], BATCHES[pieces]
    if not any(row.takes(layer.as_stored.window) for layer in spec.layers):
        with pytest.raises(KvvizError, match="take cached"):
            DesignCache(row, model.config)
        return
    if row.queries and name == "deepseek_v3":
        with pytest.raises(KvvizError, match="take cached"):
            cache = DesignCache(row, model.config)
            decode_with(model, cache, prompt_of(batch, PROMPT), PIECES[pieces])
        return
    made = LiveTensors([*model.parameters(), *model.buffers()])
    cache = DesignCache(row, model.config, capacity=PROMPT + NEW)
    assert cache.own and all(own.shape is None for own in cache.own), "nothing is allocated before the first append"
    with torch.inference_mode(), made:
        tokens, logits = decode_with(model, cache, prompt_of(batch, PROMPT), PIECES[pieces])

    without, last = expected(name, batch)
    assert len(without.unique()) >= 7, "a text that repeats one token would prove nothing"
    if row.exact:
        assert torch.equal(tokens, without)
        assert (logits - last).abs().max() < 1e-3
    else:
        assert torch.isfinite(logits).all()

    rows, fed = layer_states(cache), PROMPT + NEW - 1
    assert {state.seen for state in rows} == {fed}
    assert sum(state.nbytes for state in rows) == kept_bytes(row, spec, fed, batch, "float32")
    for own in cache.own:
        assert own.allocated == storages_below(own)
        assert 0 < own.nbytes <= own.allocated
        assert own.picture()["kind"]
    assert made.live_bytes(logits, tokens) == sum(state.allocated for state in rows)
    cache.reset()
    assert made.live_bytes(logits, tokens) == 0


@pytest.mark.slow
@pytest.mark.parametrize("design", [name for name, row in DESIGNS.items() if not getattr(row.new(), "watched", False)])
@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3"])
def test_under_the_transformer_from_scratch(family, expected, name, design):
    from kvviz.decoding.scratch.load import from_transformers

    twin = from_transformers(family(name)[0])
    caches = [DESIGNS[design].new(capacity=PROMPT + NEW) for _ in twin.blocks]
    chosen, new = [], prompt_of(1, PROMPT)
    with torch.inference_mode():
        for _ in range(NEW):
            new = twin(new, caches)[:, -1:].argmax(-1)
            chosen.append(new)
    tokens = torch.cat(chosen, dim=1)
    assert torch.equal(tokens, expected(name, 1)[0]) or not DESIGNS[design].exact
    assert {own.seen for own in caches} == {PROMPT + NEW - 1}


@pytest.mark.parametrize("design", ["concat", "prealloc", "paged", "sinks"])
def test_eager_attention_too(family, expected, design):
    model, _ = family("gemma3")
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            cache = DesignCache(DESIGNS[design], model.config, capacity=PROMPT + NEW)
            tokens, _ = decode_with(model, cache, prompt_of(3, PROMPT), PIECES["uneven"])
    finally:
        model.set_attn_implementation("sdpa")
    assert torch.equal(tokens, expected("gemma3", 3)[0]) or not DESIGNS[design].exact
