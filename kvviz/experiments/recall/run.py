"""Asks for facts after a text was read: the cache shrinks to its budget first, then come question and answer.

A design reads the text in one prefill, which attends to everything, and keeps what its budget allows. Each question
goes to a copy of that cache, token by token, and the model goes on greedily. So a design has to choose what to keep
before it knows what it will be asked for, and no question helps or disturbs another.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean

import torch
from transformers import DynamicCache

from kvviz.caches.designs import DESIGNS, Design, tokens_of
from kvviz.caches.hf_layer import DesignCache
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import check_context
from kvviz.decoding.modes import Forward, check_modes, mode_named, reading_new_tokens
from kvviz.decoding.read_cache import layer_states
from kvviz.experiments.comparison.comparison_run import look
from kvviz.experiments.kind import Bench, Record
from kvviz.experiments.limits import check_prompt
from kvviz.experiments.recall.spec import ASKING, RecallSpec
from kvviz.experiments.recall.texts import Fact, Text, draw


@dataclass
class Contender:
    """A mode at one budget (percent; None for one without), and what it answered, question by question.

    `nbytes` is what its cache held after each text.
    """

    mode: str
    percent: int | None = None
    said: list[str] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)

    def design(self, tokens: int) -> Design | None:
        """The design with its budget for a text of so many tokens; None for transformers' own full cache."""
        row = DESIGNS.get(self.mode)
        return row if row is None or self.percent is None else row.at(tokens_of(f"{self.percent}%", tokens))


def contenders(spec: RecallSpec) -> list[Contender]:
    """List the full cache, and each design at each budget; one without a budget stands once."""
    full, *designs = spec.modes
    return [
        Contender(full),
        *(
            Contender(name, percent)
            for name in designs
            for percent in (sorted(spec.budgets) if DESIGNS[name].budget else (None,))
        ),
    ]


def run(spec: RecallSpec, bench: Bench) -> Iterator[Record]:
    """Yield a record that names the device, one for each text that all have been asked about, and the document."""
    work = spec.work()
    loaded = bench.load(work)
    check_modes(spec.modes, loaded.source.config, loaded.device)
    asked = contenders(spec)
    questions: list[Record] = []
    lengths: list[int] = []
    yield look(spec, loaded)
    drawn = [(seed, number) for seed in range(1, spec.seeds + 1) for number in range(spec.texts)]
    for done, (seed, number) in enumerate(drawn):
        text = draw(seed, number, spec.facts, spec.tokens, lambda piece: len(loaded.codec.encode(piece)))
        told = _beginning(loaded, text.text)
        check_prompt(len(told), bench.limits.prompt_tokens)
        check_context(loaded.spec.context, len(told), ASKING)
        lengths.append(len(told))
        for one in asked:
            bench.check_stop()
            _ask(one, text, told, loaded, bench)
            yield {"t": "part", "done": done * len(asked) + asked.index(one) + 1, "of": len(drawn) * len(asked)}
        questions += ({"seed": seed, **asdict(fact), "distance": _distance(loaded, text, fact)} for fact in text.facts)
    yield {
        "t": "done",
        "document": {
            "kind": spec.kind,
            "spec": spec.to_dict(),
            "environment": asdict(loaded.environment),
            "model": loaded.source.model,
            "weights": loaded.source.weights,
            "title": loaded.source.title,
            "note": loaded.note,
            "tokens": fmean(lengths),
            "text": draw(1, 0, spec.facts, spec.tokens, lambda piece: len(loaded.codec.encode(piece))).text,
            "questions": questions,
            "rows": [_row(one, asked[0], questions) for one in asked],
        },
    }


def _row(one: Contender, full: Contender, questions: Sequence[Record]) -> Record:
    mode = mode_named(one.mode)
    right = [said == question["name"] for said, question in zip(one.said, questions, strict=True)]
    return {
        "mode": one.mode,
        "title": mode.title,
        "percent": one.percent,
        "nbytes": fmean(one.nbytes),
        "share": sum(one.nbytes) / sum(full.nbytes),
        "said": one.said,
        "right": right,
    }


def _beginning(loaded: Loaded, text: str) -> list[int]:
    """Encode a text after the token with which the model's texts begin, if it has one."""
    first, ids = loaded.model.config.bos_token_id, loaded.codec.encode(text)
    return ids if first is None or first == ids[0] else [first, *ids]


def _distance(loaded: Loaded, text: Text, fact: Fact) -> int:
    """Count the tokens from a fact to the end of its text."""
    return len(loaded.codec.encode(text.text[text.text.index(fact.statement) + len(fact.statement) :] + fact.question))


def _ask(one: Contender, text: Text, told: list[int], loaded: Loaded, bench: Bench) -> None:
    """Read a text, note what the cache holds then, and answer each question from a copy of it."""
    model, design = loaded.model, one.design(len(told))
    capacity = len(told) + ASKING
    cache = (
        DynamicCache(config=model.config) if design is None else DesignCache(design, model.config, capacity=capacity)
    )
    ids = torch.tensor([told], device=model.device)
    with torch.inference_mode():
        _reading(loaded, cache)(ids, ids)
        one.nbytes.append(sum(row.nbytes for row in layer_states(cache)))
        for fact in text.facts:
            bench.check_stop()
            one.said.append(_answer(loaded, _reading(loaded, copy.deepcopy(cache)), told, fact))


def _reading(loaded: Loaded, cache: DynamicCache) -> Forward:
    if not isinstance(cache, DesignCache):
        return reading_new_tokens(loaded.model, cache)
    return reading_new_tokens(loaded.model, cache, cache.note, cache.watching(loaded.model))


def _answer(loaded: Loaded, forward: Forward, told: Sequence[int], fact: Fact) -> str:
    """Feed a question token by token and return as many greedy tokens as the name has, as text."""
    question, left = loaded.codec.encode(fact.question), len(loaded.codec.encode(f" {fact.name}"))
    ids, said = list(told), list[int]()
    for token in question:
        ids.append(token)
        every = torch.tensor([ids], device=loaded.model.device)
        logits, _ = forward(every, every[:, -1:])
    while len(said) < left:
        said.append(int(logits[0].argmax()))
        ids.append(said[-1])
        if len(said) < left:
            every = torch.tensor([ids], device=loaded.model.device)
            logits, _ = forward(every, every[:, -1:])
    return loaded.codec.decode(said).strip()
