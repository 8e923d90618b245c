"""The engine: requests join and leave between steps, and each step is one forward over the new tokens of all that run.

It holds no clock: the caller of `step` times it.
"""

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from kvviz.caches.block_table import Eviction
from kvviz.caches.ragged import Part, RaggedCache, has_to_be_padded
from kvviz.decoding.loop import chooser
from kvviz.decoding.products import with_faster_products
from kvviz.experiments.batching.batcher import Batcher, Plan, Request, Sequence
from kvviz.experiments.batching.policies import Policy, Preemption


@dataclass(frozen=True)
class Step:
    """What a step has done, by the numbers of the requests.

    `parts`: (request, its first token that was computed, how many). `tokens`: those that were chosen. `running`,
    `waiting` and `blocks` (in use, of the group of layers that uses most) are those of the forward.
    """

    admitted: list[int]
    preempted: list[int]
    parts: list[tuple[int, int, int]]
    tokens: dict[int, int]
    ended: list[int]
    running: int
    waiting: int
    blocks: int


class Engine:
    """A model, a memory of `blocks` blocks, and a policy. With `share`, equal prefixes are computed and kept once.

    `evict` says which of them goes first when blocks run out. With `preemption` "swap", or a policy that swaps, the
    blocks of a preempted sequence are copied to the host's memory, which has room for `host_blocks`, by default as many
    as there are; what does not fit there is computed again. Raises KvvizError for a model whose sequences can't be
    kept apart in one forward.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        policy: Policy,
        blocks: int,
        *,
        places: int = 8,
        budget: int = 64,
        context: int | None = None,
        share: bool = True,
        preemption: Preemption = "recompute",
        host_blocks: int | None = None,
        evict: Eviction = "lru",
    ) -> None:
        swaps = policy.swaps or preemption == "swap"
        room = 0 if not swaps else blocks if host_blocks is None else host_blocks
        padded = has_to_be_padded(model)
        self.model = with_faster_products(model)
        self.cache = RaggedCache(self.model, blocks, share=share, host_blocks=room, evict=evict, padded=padded)
        self.batcher = Batcher(self.cache.swap, policy, places, budget, context)

    def submit(self, request: Request) -> Sequence:
        """Put a request into the queue, or refuse it: its state and `why` say so."""
        return self.batcher.submit(request)

    def cancel(self, number: int) -> bool:
        """End a request between two steps, whatever its state; False if it had ended."""
        return self.batcher.cancel(number)

    @property
    def busy(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self.batcher.waiting or self.batcher.running)

    def picture(self) -> dict[str, object]:
        """The blocks of the first group of layers, as JSON values: whose they are, and which could be hit again."""
        tables = next(iter(self.cache.groups.tables.values()))
        rows = [(one.request.number, tables.sequences[one.place]) for one in self.batcher.running]
        return {
            "kind": "blocks",
            "block": tables.block,
            "tables": [(number, list(row.blocks), row.length - row.dropped * tables.block) for number, row in rows],
            "findable": tables.pool.cached_free,
        }

    def step(self) -> Step:
        """Carry out the next step; there has to be one, so the engine has to be `busy`."""
        batcher = self.batcher
        plan = batcher.plan()
        parts = [(one.request.number, one.computed, count) for one, count in plan.parts.items()]
        running, waiting = len(batcher.running), len(batcher.waiting)
        tokens = self._compute(plan)
        blocks = batcher.groups.blocks - batcher.groups.free
        ended = batcher.take(plan, tokens)
        return Step(
            admitted=[one.request.number for one in plan.admitted],
            preempted=[one.request.number for one in plan.preempted],
            parts=parts,
            tokens={one.request.number: token for one, token in tokens.items()},
            ended=[one.request.number for one in ended],
            running=running,
            waiting=waiting,
            blocks=blocks,
        )

    @torch.inference_mode()
    def _compute(self, plan: Plan) -> dict[Sequence, int]:
        """Make the copies of a plan, then its forward; return the tokens that are chosen."""
        for copy in plan.copies:
            way = "out" if copy.out else "in"
            counts = {f"swapped_{way}_blocks": 1, f"swapped_{way}_bytes": self.cache.carry_out(copy)}
            self.batcher.sequences[copy.number].swapped.update(counts)
        logits = self.cache.forward(
            [
                Part(one.place, one.computed, one.ids[one.computed : one.computed + count])
                for one, count in plan.parts.items()
            ]
        )
        return _choose(logits, plan.parts)


def _choose(logits: torch.Tensor, parts: dict[Sequence, int]) -> dict[Sequence, int]:
    """Choose the next token of each sequence that has none pending, each in its own way; a row of logits for each."""
    likeliest = logits.argmax(dim=-1).tolist()
    tokens = {}
    for row, (one, count) in enumerate(parts.items()):
        if one.pending > count:
            continue  # its prompt is not read to the end yet
        sampling = one.request.sampling
        if sampling.temperature:
            tokens[one] = int(chooser(sampling)(logits[row : row + 1], len(one.chosen)))
        else:
            tokens[one] = likeliest[row]
    return tokens
