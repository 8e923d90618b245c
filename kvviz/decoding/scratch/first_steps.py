"""The step before: a decoder of attention alone, without residuals and MLP, and its cache as a plain dict.

Its interfaces and behaviour are those of the chapter "Inference I - KV Cache" of LLM101n
(https://bagustris.github.io/LLM101n/ch12.html). `scratch.model` comes after it.
"""

import math
import time
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvviz.base.errors import KvvizError
from kvviz.device.clock import Sync, synchroniser

KVCache = dict[int, tuple[Tensor, Tensor]]  # the keys and values (B, n_heads, T_total, head_dim) of each layer


class AttentionNoCache(nn.Module):
    """Causal attention over everything it is given: (B, T, d_model) -> (B, T, d_model)."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        if n_heads < 1 or d_model % n_heads:
            why = f"a width of {d_model} can't be shared among {n_heads} heads"
            raise KvvizError(f"{why}; take a divisor of it")
        self.n_heads, self.head_dim = n_heads, d_model // n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def split(self, x: Tensor) -> list[Tensor]:
        """Project to queries, keys and values, one row a head."""
        parts = self.qkv(x).chunk(3, dim=-1)  # each (B, T, d_model)
        heads = (self.n_heads, self.head_dim)
        return [part.unflatten(-1, heads).transpose(1, 2) for part in parts]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Mix the values for the new tokens."""
        new, total = q.shape[2], k.shape[2]  # T, T_total
        scores = q @ k.transpose(-2, -1)  # (B, n_heads, T, T_total)
        scores = scores / math.sqrt(self.head_dim)
        if new > 1:  # a single new token may attend to all tokens
            pairs = torch.ones(new, total, dtype=torch.bool, device=q.device)
            later = pairs.triu(diagonal=total - new + 1)
            scores = scores.masked_fill(later, float("-inf"))
        mixed = F.softmax(scores, dim=-1) @ v  # (B, n_heads, T, head_dim)
        return self.out(mixed.transpose(1, 2).flatten(2))  # (B, T, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)  # each (B, n_heads, T, head_dim)
        return self.attend(q, k, v)


class AttentionWithCache(AttentionNoCache):
    """The same for the new tokens alone; the keys and values of the others are in a dict, under the layer's number.

    The chapter's interface: it returns the cache as well, which it has extended.
    """

    def forward(  # type: ignore[override]
        self, x: Tensor, kv_cache: KVCache | None = None, layer_idx: int = 0
    ) -> tuple[Tensor, KVCache | None]:
        q, k, v = self.split(x)  # each (B, n_heads, T, head_dim)
        if kv_cache is not None and layer_idx in kv_cache:
            old_k, old_v = kv_cache[layer_idx]
            k = torch.cat([old_k, k], dim=2)  # (B, n_heads, T_total, head_dim)
            v = torch.cat([old_v, v], dim=2)
        if kv_cache is not None:
            kv_cache[layer_idx] = (k.detach(), v.detach())
        return self.attend(q, k, v), kv_cache


class GPTWithCache(nn.Module):
    """Layers of attention, one after the other, with nothing between them; the head is the table of tokens."""

    def __init__(self, vocab_size: int, d_model: int, n_heads: int, n_layers: int, max_len: int) -> None:
        super().__init__()
        self.token_emb = nn.Embedding(vocab_size, d_model)
        self.pos_emb = nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList(AttentionWithCache(d_model, n_heads) for _ in range(n_layers))
        self.ln_f = nn.LayerNorm(d_model)
        self.lm_head = nn.Linear(d_model, vocab_size, bias=False)
        self.lm_head.weight = self.token_emb.weight

    def forward(self, idx: Tensor, kv_cache: KVCache | None = None, start_pos: int = 0) -> tuple[Tensor, KVCache]:
        """(B, T) ids, the first at `start_pos`, -> (B, T, vocab_size) logits and the cache, by default a new one."""
        kv_cache = {} if kv_cache is None else kv_cache
        at = torch.arange(start_pos, start_pos + idx.shape[1], device=idx.device)  # (T,)
        x = self.token_emb(idx) + self.pos_emb(at)  # (B, T, d_model)
        for number, layer in enumerate(self.layers):
            x, kv_cache = layer(x, kv_cache, number)
        return self.lm_head(self.ln_f(x)), kv_cache

    @torch.no_grad()
    def generate_with_cache(
        self, prompt_ids: Tensor, max_new_tokens: int, temperature: float = 1.0, itos: Mapping[int, str] | None = None
    ) -> list[int]:
        """Continue a prompt (1, T), drawing from the softmax at `temperature`; return all ids, the prompt's included.

        With `itos`, ids to characters, it ends at a "." that a decode step has drawn.
        """
        self.eval()
        logits, kv_cache = self(prompt_ids, {})  # the prefill
        new = drawn(logits, temperature)  # (1, 1)
        ids = [*prompt_ids[0].tolist(), new.item()]
        for at in range(prompt_ids.shape[1], prompt_ids.shape[1] + max_new_tokens - 1):
            logits, kv_cache = self(new, kv_cache, start_pos=at)  # a decode step reads one token
            new = drawn(logits, temperature)
            ids.append(new.item())
            if itos is not None and itos.get(int(new)) == ".":
                break
        return ids


@torch.no_grad()
def attentions_agree(d_model: int = 128, n_heads: int = 4, tokens: int = 12, device: str = "cpu") -> float:
    """The largest difference between all tokens at once and one at a time with the cache, on the same weights."""
    without = AttentionNoCache(d_model, n_heads).to(device)
    cached = AttentionWithCache(d_model, n_heads).to(device)
    cached.load_state_dict(without.state_dict())
    kv_cache: KVCache = {}
    x = torch.randn(1, tokens, d_model, device=device)
    steps = [cached(x[:, i : i + 1], kv_cache)[0] for i in range(tokens)]  # each (1, 1, d_model)
    return (torch.cat(steps, dim=1) - without(x)).abs().max().item()


def drawn(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Draw a token from the last position's logits: (B, T, vocab_size) -> (B, 1)."""
    return torch.multinomial(F.softmax(logits[:, -1] / temperature, dim=-1), 1)


@torch.no_grad()
def generate_no_cache(model: GPTWithCache, prompt: Tensor, n_new: int) -> list[int]:
    """Do the same, but read the whole sequence again for every token."""
    ids = prompt
    for _ in range(n_new):
        logits, _ = model(ids, kv_cache=None)
        ids = torch.cat([ids, drawn(logits)], dim=1)
    return ids[0].tolist()


def benchmark(
    *,
    vocab: int = 128,
    d_model: int = 128,
    n_heads: int = 4,
    n_layers: int = 4,
    max_len: int = 256,
    prompt_tokens: int = 16,
    new_tokens: int = 64,
    runs: int = 5,
    device: str = "cpu",
) -> dict[str, float]:
    """Run the chapter's benchmark, its sizes as defaults: generation without and with the cache, on untrained weights.

    Returns the mean milliseconds of each and their ratio. A run of each comes first and does not count, so that neither
    pays for what is only done once.
    """
    model = GPTWithCache(vocab, d_model, n_heads, n_layers, max_len).to(device)
    prompt = torch.randint(0, vocab, (1, prompt_tokens), device=device)
    sync = synchroniser(device)
    without = _mean_ms(lambda: generate_no_cache(model, prompt, new_tokens), runs, sync)
    cached = _mean_ms(lambda: model.generate_with_cache(prompt, new_tokens), runs, sync)
    done = {"prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "runs": runs}
    return {**done, "no_cache_ms": without, "cache_ms": cached, "speedup": without / cached}


def _mean_ms(work: Callable[[], object], runs: int, sync: Sync) -> float:
    work()
    sync()
    start = time.perf_counter()
    for _ in range(runs):
        work()
    sync()
    return (time.perf_counter() - start) / runs * 1000
