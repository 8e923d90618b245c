"""Holds the scores of H2O, TOVA and SnapKV against those of NVIDIA's kvpress: the same attention, the same order.

kvpress can't be installed beside kvviz's transformers, so this runs in an environment of its own and imports of kvviz
only the designs, which need torch alone:

    python -m venv /tmp/kvpress && /tmp/kvpress/bin/pip install kvpress==0.5.5
    /tmp/kvpress/bin/python bench/kvpress_scores.py

A seeded small Llama with grouped queries reads random tokens; each press scores its one layer's keys. `correlation`
is Spearman's over the tokens that may be evicted, the least of all heads; `kept_alike` is the share of a 25 % budget
that both keep. kvpress divides the sums of H2O by the number of queries that see a token; `as_kvpress` does so too.
"""

import json

if not __package__:
    import checkout  # noqa: F401

import torch

from kvviz.caches.h2o import H2O
from kvviz.caches.snapkv import SnapKV
from kvviz.caches.tova import Tova

TOKENS, BUDGET, WINDOW = 256, 64, 16


def spearman(a: torch.Tensor, b: torch.Tensor) -> float:
    """The least of all heads; a and b (Hkv, tokens)."""
    ranks = [x.argsort(-1).argsort(-1).double() for x in (a, b)]
    return min(torch.corrcoef(torch.stack(pair))[0, 1].item() for pair in zip(*ranks, strict=True))


def alike(a: torch.Tensor, b: torch.Tensor, count: int) -> float:
    """The share of the `count` highest that both have in common."""
    kept = [torch.zeros(x.shape).scatter_(1, x.topk(count).indices, 1) for x in (a, b)]
    return (kept[0] * kept[1]).sum().item() / kept[0].sum().item()


def main() -> None:
    import kvpress
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}
    config = transformers.LlamaConfig(**sizes, num_hidden_layers=1, vocab_size=512, initializer_range=0.2)
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    seen = {}

    def note(module: torch.nn.Module, args: object, kwargs: dict[str, object], out: tuple[torch.Tensor, ...]) -> None:
        seen.update(module=module, kwargs=kwargs, weights=out[1])

    attention = model.model.layers[0].self_attn
    attention.register_forward_hook(note, with_kwargs=True)
    with torch.inference_mode():
        cache = transformers.DynamicCache(config=config)
        model(torch.randint(512, (1, TOKENS)), past_key_values=cache)
        keys, values, weights = cache.layers[0].keys, cache.layers[0].values, seen["weights"]
        presses = {
            "h2o": (kvpress.ObservedAttentionPress(), H2O(budget=BUDGET)),
            "tova": (kvpress.TOVAPress(), Tova(budget=BUDGET)),
            "snapkv": (kvpress.SnapKVPress(window_size=WINDOW, kernel_size=5), SnapKV(budget=BUDGET, at_once=WINDOW)),
        }
        rows = []
        for name, (press, ours) in presses.items():
            args = seen["kwargs"]["hidden_states"], keys, values, weights, seen["kwargs"]
            theirs = press.score(seen["module"], *args)[0]
            ours.append(keys, values)
            watched = TOKENS if ours.queries is None else ours.queries
            ours.observe(weights[:, :, TOKENS - watched :], after=0)
            own, spared = ours.ranking()[0], max(1, ours.recent if name == "snapkv" else 1)
            pairs = {"as_published": own}
            if name == "h2o":
                pairs["as_kvpress"] = own / torch.arange(TOKENS, 0, -1)
            for how, scores in pairs.items():
                old = scores[:, :-spared], theirs[:, :-spared]
                rows.append(
                    {
                        "design": name,
                        "scores": how,
                        "correlation": round(spearman(*old), 6),
                        "kept_alike": alike(*old, BUDGET - spared),
                    }
                )
    versions = {"kvpress": "0.5.5", "transformers": transformers.__version__, "torch": torch.__version__}
    print(json.dumps({"tokens": TOKENS, "budget": BUDGET, "window": WINDOW, "rows": rows, "environment": versions}))


if __name__ == "__main__":
    main()
