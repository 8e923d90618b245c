"""Asks for facts after a text was read: the cache shrinks to its budget first, then come question and answer.

A design reads the text in one prefill, which attends to everything, and keeps what its budget allows. Each question
goes to a copy of that cache, token by token, and the model goes on greedily. So a design has to choose what to keep
before it knows what it will be asked for, and no question helps or disturbs another. At one budget, designs that evict
are asked about some texts the other way round, too: one prefill reads text and question, so that the question has a say
in what is kept.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean

import torch
from transformers import DynamicCache

from kvviz.base.errors import KvvizError
from kvviz.caches.designs import DESIGNS, Design, tokens_of
from kvviz.caches.hf_layer import DesignCache
from kvviz.decoding.loading import Loaded
from kvviz.decoding.loop import check_context
from kvviz.decoding.modes import Forward, check_modes, mode_named, reading_new_tokens
from kvviz.decoding.read_cache import layer_states
from kvviz.experiments.comparison.comparison_run import look
from kvviz.experiments.kind import Bench, Record
from kvviz.experiments.limits import check_prompt
from kvviz.experiments.recall.spec import ASKING, TEXTS_BEFORE, RecallSpec
from kvviz.experiments.recall.texts import Fact, Text, draw


@dataclass
class Contender:
    """A mode at one budget (percent; None for one without), and what it answered, question by question.

    `nbytes` is what its cache held after each text. `before`: the question was read before the cache shrank.
    """

    mode: str
    percent: int | None = None
    before: bool = False
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
        *(Contender(name, spec.before, before=True) for name in designs if spec.before and DESIGNS[name].budget),
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
    of = sum(len(_asked_about(asked, number)) for _, number in drawn)
    done = 0
    for seed, number in drawn:
        text = draw(seed, number, spec.facts, spec.tokens, lambda piece: len(loaded.codec.encode(piece)))
        told = _beginning(loaded, text.text)
        check_prompt(len(told), bench.limits.prompt_tokens)
        check_context(loaded.spec.context, len(told), ASKING)
        lengths.append(len(told))
        for one in _asked_about(asked, number):
            bench.check_stop()
            _ask(one, text, told, loaded, bench)
            done += 1
            yield {"t": "part", "done": done, "of": of}
        questions += (
            {"seed": seed, "text": number, **asdict(fact), "distance": _distance(loaded, text, fact)}
            for fact in text.facts
        )
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
            "rows": [_row(one, asked[0], questions) for one in asked if not one.before],
            "before": [_row(one, asked[0], questions) for one in asked if one.before],
        },
    }


def _asked_about(every: Sequence[Contender], number: int) -> list[Contender]:
    """List who is asked about a seed's text of that number."""
    return [one for one in every if number < TEXTS_BEFORE or not one.before]


def _row(one: Contender, full: Contender, questions: Sequence[Record]) -> Record:
    mode = mode_named(one.mode)
    asked = [question for question in questions if question["text"] < TEXTS_BEFORE or not one.before]
    right = [said == question["answer"] for said, question in zip(one.said, asked, strict=True)]
    return {
        "mode": one.mode,
        "title": mode.title,
        "percent": one.percent,
        "nbytes": fmean(one.nbytes),
        "share": fmean(one.nbytes) / fmean(full.nbytes),
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
    """Read a text, note what the cache holds then, and answer each question from a copy of it.

    Whoever is asked `before` reads the text anew for each question, with the question at its end.
    """
    encode = loaded.codec.encode
    if one.before:
        for fact in text.facts:
            bench.check_stop()
            asked = [*told, *encode(fact.question)]
            cache, logits = _read(one, asked, loaded)
            one.nbytes.append(sum(row.nbytes for row in layer_states(cache)))
            one.said += _answers(loaded, _reading(loaded, cache), [asked], logits, len(encode(f" {fact.answer}")))
        return
    cache, logits = _read(one, told, loaded)
    one.nbytes.append(sum(row.nbytes for row in layer_states(cache)))
    alike: dict[tuple[int, int], list[Fact]] = {}  # questions and answers of the same lengths go together
    for fact in text.facts:
        alike.setdefault((len(encode(fact.question)), len(encode(f" {fact.answer}"))), []).append(fact)
    said = dict[Fact, str]()
    for (length, left), facts in alike.items():
        for copied, together in _copies(cache, facts, loaded.model.device):
            bench.check_stop()
            forward, ids = _reading(loaded, copied), [list(told) for _ in together]
            for i in range(length):
                for row, fact in zip(ids, together, strict=True):
                    row.append(encode(fact.question)[i])
                logits = _next(loaded, forward, ids)
            said |= zip(together, _answers(loaded, forward, ids, logits, left), strict=True)
    one.said += [said[fact] for fact in text.facts]


def _copies(cache: DynamicCache, facts: list[Fact], device: torch.device) -> list[tuple[DynamicCache, list[Fact]]]:
    """Copy a cache for questions: with a sequence for each, or if the design can't do that, once for each."""
    copied = copy.deepcopy(cache)
    try:
        copied.reorder_cache(torch.zeros(len(facts), dtype=torch.long, device=device))
    except KvvizError:
        return [(copy.deepcopy(cache), [fact]) for fact in facts]
    return [(copied, facts)]


def _read(one: Contender, told: list[int], loaded: Loaded) -> tuple[DynamicCache, torch.Tensor]:
    """Read tokens in one prefill; return the cache as it is after that, and the last logits (1, vocabulary)."""
    model, design = loaded.model, one.design(len(told))
    capacity = len(told) + ASKING
    cache = (
        DynamicCache(config=model.config) if design is None else DesignCache(design, model.config, capacity=capacity)
    )
    ids = torch.tensor([told], device=model.device)
    with torch.inference_mode():
        logits, _ = _reading(loaded, cache)(ids, ids)
    return cache, logits


def _reading(loaded: Loaded, cache: DynamicCache) -> Forward:
    if not isinstance(cache, DesignCache):
        return reading_new_tokens(loaded.model, cache)
    return reading_new_tokens(loaded.model, cache, cache.note, cache.watching(loaded.model))


def _next(loaded: Loaded, forward: Forward, ids: Sequence[Sequence[int]]) -> torch.Tensor:
    """Feed the last of each row's ids; return the logits (B, vocabulary) of what comes next."""
    every = torch.tensor(ids, device=loaded.model.device)
    with torch.inference_mode():
        logits, _ = forward(every, every[:, -1:])
    return logits


def _answers(loaded: Loaded, forward: Forward, ids: list[list[int]], logits: torch.Tensor, left: int) -> list[str]:
    """Decode `left` tokens of each row greedily and return their text; `logits` are those after `ids`."""
    said: list[list[int]] = [[] for _ in ids]
    for i in range(left):
        if i:
            logits = _next(loaded, forward, [[*row, *new] for row, new in zip(ids, said, strict=True)])
        for row, token in zip(said, logits.argmax(-1).tolist(), strict=True):
            row.append(token)
    return [loaded.codec.decode(row).strip() for row in said]
