"""Holds what our designs decide against NVIDIA's kvpress: the same model and text, the same order of the tokens.

kvpress can't be installed beside kvviz's transformers, so this runs in an environment of its own and imports of kvviz
only the designs, which need torch and transformers alone:

    python -m venv .venv-kvpress && .venv-kvpress/bin/pip install kvpress==0.5.5
    .venv-kvpress/bin/python bench/kvpress_scores.py

A seeded small Llama with grouped queries reads random tokens; each press scores its one layer's keys. `correlation`
is Spearman's over the tokens that may be evicted, the least of all heads; `kept_alike` is the share of a 25% budget
that both keep. kvpress divides the sums of H2O by the number of queries that see a token; `as_kvpress` does so too.
For KVzip both get the second reading without a request before it. `pyramid` holds what both give to each of 8 layers.
"""

import json

if not __package__:
    import checkout  # noqa: F401

import torch

from kvviz.caches.attention import rotation
from kvviz.caches.designs import pyramid_budget
from kvviz.caches.expected import Expected
from kvviz.caches.h2o import H2O
from kvviz.caches.kvzip import KVzip
from kvviz.caches.snapkv import SnapKV
from kvviz.caches.tova import Tova

TOKENS, BUDGET, WINDOW, LAYERS = 256, 64, 16, 8


def spearman(a: torch.Tensor, b: torch.Tensor) -> float:
    """The least of all heads; a and b (Hkv, tokens)."""
    ranks = [x.argsort(-1).argsort(-1).double() for x in (a, b)]
    return min(torch.corrcoef(torch.stack(pair))[0, 1].item() for pair in zip(*ranks, strict=True))


def alike(a: torch.Tensor, b: torch.Tensor, count: int) -> float:
    """The share of the `count` highest that both have in common."""
    kept = [torch.zeros(x.shape).scatter_(1, x.topk(count).indices, 1) for x in (a, b)]
    return (kept[0] * kept[1]).sum().item() / kept[0].sum().item()


def compared(design: str, scores: str, ours: torch.Tensor, theirs: torch.Tensor, kept: int) -> dict[str, object]:
    """A row: how alike two scores (Hkv, tokens) are, and the `kept` highest of both."""
    figures = {"correlation": round(spearman(ours, theirs), 6), "kept_alike": alike(ours, theirs, kept)}
    return {"design": design, "scores": scores, **figures}


def main() -> None:
    import kvpress
    import transformers
    from kvpress.utils import get_prerope_query_states
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}
    config = transformers.LlamaConfig(**sizes, num_hidden_layers=1, vocab_size=512, initializer_range=0.2)
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    seen = {}

    def note(module: torch.nn.Module, args: object, kwargs: dict[str, object], out: tuple[torch.Tensor, ...]) -> None:
        seen.update(module=module, kwargs=kwargs, weights=out[1])

    attention = model.model.layers[0].self_attn
    attention.register_forward_hook(note, with_kwargs=True)
    attention.rotary_emb = model.model.rotary_emb  # where kvpress looks for it
    with torch.inference_mode():
        cache, text = transformers.DynamicCache(config=config), torch.randint(512, (1, TOKENS))
        model(text, past_key_values=cache)
        keys, values, weights = cache.layers[0].keys, cache.layers[0].values, seen["weights"]
        hidden, others = seen["kwargs"]["hidden_states"], seen["kwargs"]
        presses = {
            "h2o": (kvpress.ObservedAttentionPress(), H2O(budget=BUDGET)),
            "tova": (kvpress.TOVAPress(), Tova(budget=BUDGET)),
            "snapkv": (kvpress.SnapKVPress(window_size=WINDOW, kernel_size=5), SnapKV(budget=BUDGET, at_once=WINDOW)),
        }
        rows = []
        for name, (press, ours) in presses.items():
            theirs = press.score(attention, hidden, keys, values, weights, others)[0]
            ours.append(keys, values)
            watched = TOKENS if ours.queries is None else ours.queries
            ours.observe(weights[:, :, TOKENS - watched :], after=0)
            own, spared = ours.ranking()[0], max(1, ours.recent if name == "snapkv" else 1)
            pairs = {"as_published": own}
            if name == "h2o":
                pairs["as_kvpress"] = own / torch.arange(TOKENS, 0, -1)
            for how, scores in pairs.items():
                rows.append(compared(name, how, scores[:, :-spared], theirs[:, :-spared], BUDGET - spared))

        press, expected = kvpress.ExpectedAttentionPress(), Expected(budget=BUDGET, at_once=WINDOW)
        expected.append(keys, values)
        plain = get_prerope_query_states(attention, hidden)
        queries = apply_rotary_pos_emb(*[plain] * 2, *others["position_embeddings"])
        expected.meet(queries[0], rotation(model, attention), attention.scaling)
        theirs = press.score(attention, hidden, keys, values, None, others)[0]
        sinks = press.n_sink
        rows.append(compared("expected", "as_published", expected.ranking()[0, :, sinks:], theirs[:, sinks:], BUDGET))

        kvzip, press = KVzip(budget=BUDGET, at_once=WINDOW), kvpress.KVzipPress()
        kvzip.append(keys, values)
        model(text, past_key_values=cache)  # the second reading
        kvzip.begin()
        kvzip.observe(seen["weights"], after=0)
        press.end_idx = press.context_length = TOKENS
        press.score_val = torch.zeros(1, *keys.shape[:3])
        layer = cache.layers[0]
        press.score_kvzip(attention, seen["kwargs"]["hidden_states"], layer.keys, layer.values, None, seen["kwargs"])
        rows.append(compared("kvzip", "as_published", kvzip.scores[0], press.score_val[0, 0], BUDGET))

        config.num_hidden_layers = LAYERS
        press, pyramid = kvpress.PyramidKVPress(compression_ratio=0.75, window_size=1), []
        for attention.layer_idx in range(LAYERS):
            mine = pyramid_budget(1024 // 4, 1, 1024, attention.layer_idx, LAYERS)
            pyramid.append({"ours": mine, "kvpress": press.get_layer_budget(attention, 1024)})
    versions = {"kvpress": "0.5.5", "transformers": transformers.__version__, "torch": torch.__version__}
    sizes = {"tokens": TOKENS, "budget": BUDGET, "window": WINDOW}
    print(json.dumps({**sizes, "rows": rows, "pyramid": pyramid, "environment": versions}))


if __name__ == "__main__":
    main()
