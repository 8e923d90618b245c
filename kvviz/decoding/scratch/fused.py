"""The same attention with its scores, mask, softmax and mix in one call of torch, which never keeps all the scores.

torch chooses the kernel: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

import torch.nn.functional as F
from torch import Tensor

from kvviz.decoding.scratch.attention import Attention, Mask, causal
from kvviz.decoding.scratch.cache import Cache
from kvviz.decoding.scratch.positions import Encoding


class FusedAttention(Attention):
    """Attention on the same weights; shapes as there."""

    def forward(self, x: Tensor, encoding: Encoding, cache: Cache | None = None, mask: Mask = causal) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        q, k = encoding.rotate(self.query_norm(q)), encoding.rotate(self.key_norm(k))  # q (B, H, T, D)
        keys, values = (k, v) if cache is None else cache.append(k, v)  # keys values (B, Hkv, T_total, D)
        keys, values = self.share(keys), self.share(values)  # keys values (B, H, T_total, D)
        new, total = q.shape[2], keys.shape[2]
        if mask is causal and type(encoding).bias is Encoding.bias and new in (1, total):  # torch knows these masks
            mixed = F.scaled_dot_product_attention(q, keys, values, is_causal=new > 1)  # mixed (B, H, T, D)
        else:
            lowered = q.new_zeros(new, total).masked_fill(~mask(new, total, x.device), float("-inf"))
            mixed = F.scaled_dot_product_attention(q, keys, values, encoding.bias(lowered))  # mixed (B, H, T, D)
        return self.output(mixed.transpose(1, 2).flatten(2))  # out (B, T, W)
