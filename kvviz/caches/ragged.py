"""Sequences of different lengths in one forward of a transformers model: the paged cache as an engine keeps it.

The new tokens of all sequences stand one after another in a single row, each with its own position: a decode step
brings one, a chunk of a prefill many, and all go through the weights together. Only attention must keep them apart. So
the model's attention function is replaced during the forward: it takes the rows apart and calls the model's own one for
all sequences with equally many new tokens at a time, the shorter ones padded and masked. Where that function can't be
replaced, those sequences are a batch of their own (`padded.py`), and each such batch reads the weights.

The memory is one tensor of all blocks for each layer. A server's kernel reads the blocks where they are; here they are
gathered first, which copies the whole cache at each step. ORCA's selective batching,
https://www.usenix.org/conference/osdi22/presentation/yu
"""

import inspect
from array import array
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.cache_utils import DynamicSlidingWindowLayer as _Sliding

from kvviz.base.errors import KvvizError
from kvviz.caches.attention import Replaceable
from kvviz.caches.base import Pair
from kvviz.caches.block_table import Eviction
from kvviz.caches.layer_groups import LayerGroups, Window
from kvviz.caches.padded import PaddedBatch, Row
from kvviz.caches.swap import Copy, SwapSpace
from kvviz.device.memory import is_out_of_memory

NAME = "kvviz_ragged"


class Part(NamedTuple):
    """The tokens of one sequence that a forward computes, the first of them at position `start`."""

    sequence: int
    start: int
    ids: list[int]


def _new_tokens(part: Part) -> int:
    return len(part.ids)


class Span(NamedTuple):
    """`rows` sequences with `new` tokens each, padded to `length` tokens in memory.

    `mask`, (rows, 1, new, length), is added to the scores.
    """

    rows: int
    new: int
    length: int
    mask: torch.Tensor


class Layout(NamedTuple):
    """Where a group of layers writes and reads in a forward.

    New token `sources[i]` goes to slot `slots[i]`, without `sources` the i-th one; `blocks` are gathered one after
    another and hold all `spans`.
    """

    slots: torch.Tensor
    sources: torch.Tensor | None
    blocks: torch.Tensor
    spans: list[Span]


class RaggedCache(DynamicCache):
    """Keys and values of many sequences, as transformers' cache for one forward after another.

    `keys[layer]` and `values[layer]` are (blocks, tokens of a block, Hkv, D), allocated at the first forward; room for
    `host_blocks` in the host's memory, at the first copy. With `padded`, only sequences with equally many new tokens
    share a forward (`padded.py`). Raises KvvizError for a model with a layer that keeps more than keys and values.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        blocks: int,
        *,
        share: bool = True,
        host_blocks: int = 0,
        evict: Eviction = "lru",
        padded: bool = False,
    ) -> None:
        super().__init__(config=model.config)
        kinds = {type(layer).__name__ for layer in self.layers if type(layer) not in (DynamicLayer, _Sliding)}
        if "chunked_attention" in (getattr(model.config.get_text_config(decoder=True), "layer_types", None) or ()):
            kinds.add("chunked_attention")  # transformers keeps its tokens as a window's
        if kinds:
            raise KvvizError(f"{model.config.model_type} has layers that are not kept in these blocks: {min(kinds)}")
        self._model, self._device = model, model.device
        self._attention = Replaceable(model)
        self._windows: list[Window] = [
            layer.sliding_window if isinstance(layer, _Sliding) else None for layer in self.layers
        ]
        if padded and any(self._windows):
            raise KvvizError(f"{model.config.model_type} has windows, and an attention that can't be replaced")
        self._padded, self._takes = padded, inspect.signature(model.forward).parameters
        self.groups = LayerGroups(dict.fromkeys(self._windows), blocks, share=share, evict=evict)
        self.swap = SwapSpace(self.groups, host_blocks)
        self._host: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._count = torch.arange((blocks + 1) * self.groups.block, device=model.device)
        self._zero = torch.zeros((), dtype=model.dtype, device=model.device)
        self._lowest = self._zero + torch.finfo(model.dtype).min
        self.keys: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}
        self._layouts: Mapping[Window, Layout] = {}

    def forward(self, parts: Sequence[Part]) -> torch.Tensor:
        """Compute new tokens of several sequences; return the logits after the last one of each, (parts, vocabulary).

        Raises OutOfBlocks if the memory can't hold them.
        """
        order = sorted(range(len(parts)), key=[len(part.ids) for part in parts].__getitem__)
        ordered = [parts[i] for i in order]
        if self._padded:
            rows = torch.cat([self._in_one_batch(list(alike)) for _, alike in groupby(ordered, _new_tokens)])
            return rows[[order.index(i) for i in range(len(parts))]]
        self._layouts = self._laid_out(ordered)
        ids, where, last = list[int](), list[int](), [0] * len(parts)
        for i, part in zip(order, ordered, strict=True):
            ids += part.ids
            where += range(part.start, part.start + len(part.ids))
            last[i] = len(ids) - 1
        new = _longs(ids + where, self._device).view(2, 1, -1)
        with self._attention.replaced(NAME, self.attend):
            out = self._model(
                input_ids=new[0],
                position_ids=new[1],
                past_key_values=self,
                use_cache=True,
                logits_to_keep=0 if len(ids) == len(parts) else _longs(last, self._device),  # 0: all
            )
        logits: torch.Tensor = out.logits[0]
        return logits

    def _in_one_batch(self, parts: Sequence[Part]) -> torch.Tensor:
        """Compute equally many new tokens of several sequences; return the logits after the last one of each."""
        (tables,), new = self.groups.tables.values(), len(parts[0].ids)
        for part in parts:
            self.groups.append(part.sequence, part.ids)
        rows = [Row(tables.sequences[part.sequence].blocks, part.start + new, new) for part in parts]
        batch = PaddedBatch(rows, tables.block, self.groups.blocks, self.keys, self.values, self._device)
        where = {"position_ids": batch.position_ids} if "position_ids" in self._takes else {}
        out = self._model(
            input_ids=torch.tensor([part.ids for part in parts], device=self._device),
            attention_mask=batch.attention_mask,
            past_key_values=batch,
            use_cache=True,
            logits_to_keep=1,
            **where,
        )
        logits: torch.Tensor = out.logits[:, -1]
        return logits

    def carry_out(self, copy: Copy) -> int:
        """Copy a block of every layer of a group to the host's memory or back; return the bytes."""
        nbytes = 0
        for layer in (layer for layer, window in enumerate(self._windows) if window == copy.window):
            stored = self.keys[layer], self.values[layer]
            if layer not in self._host:
                shapes = ((self.swap.blocks, *memory.shape[1:]) for memory in stored)
                pinned = self._device.type == "cuda"  # so that a copy need not wait for the processor
                key, value = (torch.empty(shape, dtype=stored[0].dtype, pin_memory=pinned) for shape in shapes)
                self._host[layer] = key, value
            for memory, host in zip(stored, self._host[layer], strict=True):
                here, there = memory[copy.block], host[copy.host]
                there.copy_(here, non_blocking=True) if copy.out else here.copy_(there, non_blocking=True)
                nbytes += here.nbytes
        return nbytes

    @property
    def slot_bytes(self) -> dict[Window, int]:
        """Bytes of a token in all layers of each group, once the memory is allocated."""
        pairs = [(self._windows[layer], (self.keys[layer], self.values[layer])) for layer in self.keys]
        tokens = self.groups.blocks * self.groups.block
        return {
            window: sum(memory.nbytes for own, pair in pairs if own == window for memory in pair) // tokens
            for window in self.groups.tables
        }

    def _laid_out(self, parts: Sequence[Part]) -> dict[Window, Layout]:
        """Add the new tokens to the tables, and find out where each group of layers writes and reads."""
        size, first = self.groups.block, 0
        writes: dict[Window, tuple[list[int], list[int]]] = {window: ([], []) for window in self.groups.tables}
        for sequence, _, ids in parts:
            for window, written in self.groups.append(sequence, ids).items():
                slots, sources = writes[window]
                for block, at, start, tokens, _ in written:
                    slots += range(block * size + at, block * size + at + tokens)
                    sources += range(first + start, first + start + tokens)
            first += len(ids)
        # a block may be dropped and taken again: what is written to a slot later counts
        unique = {window: dict(zip(*pair, strict=True)) for window, pair in writes.items()}
        return {window: self._layout(window, parts, slots, first) for window, slots in unique.items()}

    def _layout(self, window: Window, parts: Sequence[Part], writes: Mapping[int, int], tokens: int) -> Layout:
        block, sequences = self.groups.block, self.groups.tables[window].sequences
        blocks, kept, shapes = list[int](), list[int](), list[tuple[int, int, int]]()
        for new, alike in groupby(parts, key=_new_tokens):
            members = list(alike)
            tables = [sequences[part.sequence] for part in members]
            most = max(len(table.blocks) for table in tables)
            for part, table in zip(members, tables, strict=True):
                blocks += table.blocks + [0] * (most - len(table.blocks))
                kept.append(part.start - table.dropped * block)
            shapes.append((len(members), new, most * block))
        sizes = [len(writes), len(blocks), *(rows for rows, _, _ in shapes)]
        slots, gathered, *newest = _longs([*writes, *blocks, *kept], self._device).split(sizes)
        sources = None  # the new tokens as they come
        if len(writes) < tokens:
            sources = _longs(list(writes.values()), self._device)
        spans = [Span(*shape, self._mask(window, *shape[1:], of)) for shape, of in zip(shapes, newest, strict=True)]
        return Layout(slots, sources, gathered, spans)

    def _mask(self, window: Window, new: int, length: int, kept: torch.Tensor) -> torch.Tensor:
        """What is added to the scores, (rows, 1, new, length), of sequences that held `kept` tokens before."""
        newest, held = kept.view(-1, 1, 1, 1), self._count[:length]
        if new > 1:
            newest = newest + self._count[:new, None]
        seen = held <= newest if window is None else (held <= newest) & (held > newest - window)
        return torch.where(seen, self._zero, self._lowest)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **more: Any
    ) -> Pair:
        """Write a layer's new keys and values (1, Hkv, N, D); return all that the spans attend to.

        That is (rows, Hkv, length, D) of the only span, and (1, Hkv, S, D) of several, one behind the other.
        """
        layout = self._layouts[self._windows[layer_idx]]
        pairs = ((self.keys, key_states), (self.values, value_states))
        keys, values = (self._through(stored, new, layer_idx, layout) for stored, new in pairs)
        return keys, values

    def _through(self, stored: dict[int, torch.Tensor], new: torch.Tensor, layer: int, layout: Layout) -> torch.Tensor:
        """Write new tokens of one kind into the blocks of a layer, and gather the blocks of all sequences."""
        tokens = new[0].transpose(0, 1)  # (N, Hkv, D)
        if layer not in stored:  # zeros: what is masked must be a number
            stored[layer] = new.new_zeros(self.groups.blocks, self.groups.block, *tokens.shape[1:])
        memory = stored[layer]
        if layout.sources is not None:
            tokens = tokens.index_select(0, layout.sources)
        memory.flatten(0, 1).index_copy_(0, layout.slots, tokens)
        gathered = memory.index_select(0, layout.blocks)
        if len(layout.spans) == 1:
            return gathered.view(layout.spans[0].rows, -1, *tokens.shape[1:]).transpose(1, 2)
        return gathered.flatten(0, 1).transpose(0, 1)[None]

    def attend(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: object,
        **more: Any,
    ) -> tuple[torch.Tensor, None]:
        """Take the place of a model's attention function: call it for each span, and join what comes out."""
        function = self._attention.usual(module)
        layout, outputs, new, old = self._layouts[self._windows[module.layer_idx]], [], 0, 0
        if len(layout.spans) == 1:
            (span,) = layout.spans
            q = query[0].unflatten(1, (span.rows, span.new)).transpose(0, 1)
            return function(module, q, key, value, span.mask, **more)[0].flatten(0, 1)[None], None
        for span in layout.spans:
            q = _rows(query, new, span.rows, span.new)
            k, v = (_rows(x, old, span.rows, span.length) for x in (key, value))
            outputs.append(function(module, q, k, v, span.mask, **more)[0].flatten(0, 1))  # (rows x new, H, D)
            new, old = new + span.rows * span.new, old + span.rows * span.length
        return torch.cat(outputs)[None], None


def _longs(values: list[int], device: torch.device) -> torch.Tensor:
    """Make a tensor of whole numbers; six times as fast as torch.tensor with a list."""
    if not values:
        return torch.empty(0, dtype=torch.long, device=device)
    return torch.frombuffer(array("q", values), dtype=torch.long).to(device)


def _rows(x: torch.Tensor, first: int, rows: int, tokens: int) -> torch.Tensor:
    """Take `rows` sequences of so many tokens out of one row: (1, H, N, D) -> (rows, H, tokens, D)."""
    return x[0, :, first : first + rows * tokens].unflatten(1, (rows, tokens)).transpose(0, 1)


TOLERANCE = {torch.float32: 1e-3}  # of the largest logit: what another order of additions explains, with room
TRIED = [5, 6, 7, 8, 9], [9, 7, 5]  # ids of two short prompts


@torch.inference_mode()
def has_to_be_padded(model: PreTrainedModel) -> bool:
    """Try how sequences of a model can share a forward: whatever their lengths, or only in padded batches.

    Their logits have to be those that each gets alone. Raises KvvizError for a model that does neither: one that
    computes attention, or counts positions, in a way of its own.
    """
    alone = torch.cat([model(input_ids=torch.tensor([ids], device=model.device)).logits[:, -1] for ids in TRIED])
    near = TOLERANCE.get(model.dtype, 0.1) * alone.abs().max()
    for padded in (False, True):
        try:
            if (_together(model, padded) - alone).abs().max() <= near:
                return padded
        except KvvizError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise
    family = model.config.model_type
    raise KvvizError(f"{family} computes attention in a way of its own: its sequences can't share a forward")


def _together(model: PreTrainedModel, padded: bool) -> torch.Tensor:
    """The logits of the prompts that are tried, each in two pieces: the second ones share a batch."""
    cache, (first, second) = RaggedCache(model, len(TRIED), padded=padded), TRIED
    one, other = (cache.groups.start(ids)[0] for ids in TRIED)
    cache.forward([Part(one, 0, first[:3])])
    cache.forward([Part(other, 0, second[:1])])
    return cache.forward([Part(one, 3, first[3:]), Part(other, 1, second[1:])])
