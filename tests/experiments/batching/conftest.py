"""The small models of the cache designs' tests, and requests whose tokens alone are known."""

import pytest
import torch

from kvviz.base.records import Sampling
from kvviz.decoding.loop import chooser, decode
from kvviz.experiments.batching.batcher import Request
from tests.caches.conftest import family, one_thread, prompt_of  # noqa: F401  fixtures

COMMON = prompt_of(1, 40, seed=21)[0].tolist()
# (tokens in common with others, own ones, new ones, temperature)
POOL = [(0, 1, 20, 0), (0, 7, 9, 0), (16, 1, 12, 0), (40, 9, 3, 0), (33, 0, 24, 0), (0, 30, 30, 0), (32, 5, 14, 1.0)]
CLEAR = 1e-4  # logits of about 10 that are this far apart are no near tie


def requests_of(pool=POOL):
    """The prompts of a pool, each followed by what is asked."""
    for number, (shared, own, new, temperature) in enumerate(pool):
        ids = COMMON[:shared] + prompt_of(1, own, seed=number)[0].tolist() if own else COMMON[:shared]
        yield Request(number, tuple(ids), new, Sampling(temperature=temperature, seed=number))


@pytest.fixture(scope="session")
def alone(family):  # noqa: F811
    """`alone("gpt2")`: each request of the pool with the tokens that it gets when it has that model for itself."""
    known = {}

    def get(name):
        if name not in known:
            model, _ = family(name)
            known[name] = [(request, tokens_alone(model, request)) for request in requests_of()]
        return known[name]

    return get


def tokens_alone(model, request):
    """What transformers' own cache gives; no step is so near a tie that rounding could decide it."""
    choose = chooser(request.sampling)
    prompt = torch.tensor([request.prompt])
    steps = list(decode(model, prompt, mode="cached", new_tokens=request.new_tokens, choose=choose))
    gaps = [first - second for first, second in (step.logits[0].topk(2).values.tolist() for step in steps)]
    assert request.sampling.temperature or min(gaps) > CLEAR
    return [int(step.token_ids) for step in steps]
