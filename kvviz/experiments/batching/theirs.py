"""transformers' own continuous batching on the same requests, in a memory of the same size.

https://huggingface.co/docs/transformers/main/en/continuous_batching
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType

from transformers import GenerationConfig, PreTrainedModel
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from kvviz.base.errors import KvvizError
from kvviz.caches.block_table import BLOCK
from kvviz.experiments.batching.timeline import NAP_S, PART_S, Arrivals, News, Part, request_row
from kvviz.models.text import Speller

_LOGGER = logging.getLogger("ContinuousBatchingLogger")  # it reports the lack of a package that it does not need here
GREEDY = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)  # no token ends a text
NAMES = {field.name for field in fields(ContinuousBatchingConfig)}
PAGE = "page_size" if "page_size" in NAMES else "block_size"  # its name in transformers 5.17


def serve_theirs(
    model: PreTrainedModel,
    arrivals: Arrivals,
    spell: Speller,
    *,
    blocks: int,
    places: int,
    budget: int,
    refused: Mapping[int, str] = MappingProxyType({}),
    between: Callable[[], None] = lambda: None,
) -> Iterator[Part]:
    """Serve the requests, greedily; a step computes at most `budget` tokens. `refused` says why some can never fit.

    It tells neither when a request was admitted or preempted, nor what was a hit; a request that was preempted has no
    `token_s`. Raises KvvizError where it fails.
    """
    sizes = {PAGE: BLOCK, "num_blocks": blocks, "max_batch_tokens": budget, "max_requests_per_batch": places}
    options = ContinuousBatchingConfig(**sizes)
    coming, news = deque(arrivals), News(spell)
    left = sum(not refused.get(request.number) for _, request in arrivals)
    _LOGGER.setLevel(logging.CRITICAL)
    with model.continuous_batching_context_manager(GREEDY, continuous_batching_config=options) as manager:
        start = told = time.perf_counter()
        while left or coming:
            between()
            if time.perf_counter() >= told + PART_S:
                yield news.part()
                told = time.perf_counter()
            now = time.perf_counter() - start
            while coming and coming[0][0] <= now:
                at, request = coming.popleft()
                number, why = request.number, refused.get(request.number, "")
                state = "refused" if why else "waiting"
                news.of(number, **{**request_row(at, request), "state": state, "sentence": why})
                if not why:
                    manager.add_request(list(request.prompt), str(number), request.new_tokens, record_timestamps=True)
            result = manager.get_result(timeout=NAP_S)
            if result is not None and result.is_finished():
                left -= 1
                if result.error:
                    raise KvvizError(f"transformers' continuous batching fails on this model: {result.error}")
                times, tokens = [round(at - start, 6) for at in result.timestamps], result.generated_tokens
                whole = len(times) == len(tokens)  # after a preemption it has forgotten the times before
                ended = {"state": "done", "ended_s": times[-1], "token_ids": tokens}
                news.of(int(result.request_id), **ended, token_s=times if whole else [])
            elif not manager.is_running():
                raise KvvizError("transformers' continuous batching has stopped before all requests were done")
    yield news.part()
