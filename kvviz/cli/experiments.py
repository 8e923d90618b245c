"""`kvviz ceilings`, `roofline`, `caches`, `recall`, `endpoint`, `serving`: the pages' experiments, in this process."""

from dataclasses import replace
from typing import Annotated

import typer

from kvviz.base.errors import KvvizError
from kvviz.base.words import millis
from kvviz.cli.measure_here import alone, bench_here, document_here
from kvviz.cli.options import (
    AsJson,
    Batch,
    Budget,
    Device,
    Dtype,
    KvEvents,
    ModelArgument,
    NoWait,
    Pyramid,
    Weights,
    counts,
    names,
    numbers,
)
from kvviz.cli.output import answer, say
from kvviz.cost.ceilings import ceilings_text
from kvviz.experiments.batching import words as batching_words
from kvviz.experiments.batching.policies import Preemption
from kvviz.experiments.batching.spec import BatchingSpec
from kvviz.experiments.batching.trace import trace_named
from kvviz.experiments.cache_designs import words as cache_words
from kvviz.experiments.cache_designs.spec import RACED, CachesSpec
from kvviz.experiments.concurrency import words as concurrency_words
from kvviz.experiments.concurrency.spec import ConcurrencySpec
from kvviz.experiments.forgetting import words as forgetting_words
from kvviz.experiments.forgetting.spec import FORGETTING, ForgettingSpec
from kvviz.experiments.kind import Record, Spec
from kvviz.experiments.load import words as load_words
from kvviz.experiments.load.spec import LoadSpec
from kvviz.experiments.recall import words as recall_words
from kvviz.experiments.recall.spec import FORGETFUL, MODEL, RecallSpec
from kvviz.experiments.roofline import words as roofline_words
from kvviz.experiments.roofline.spec import RoofSpec
from kvviz.experiments.serving import spec as asked
from kvviz.experiments.serving import words as serving_words
from kvviz.models.text import STORY


def ceilings(
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again and replace what is kept.")] = False,
    device: Device = "auto",
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Measure how fast this device reads, multiplies and starts an operation; the figures are kept."""
    from kvviz.device.environment import pick_device, take_cores
    from kvviz.device.measure_ceilings import known_ceilings

    take_cores()
    found = known_ceilings(pick_device(device), alone("kvviz ceilings", not no_wait), refresh=refresh)
    answer(found.to_dict(), lambda: ceilings_text(found), as_json)


def roofline(
    model: ModelArgument,
    weights: Weights = "auto",
    tokens: Annotated[int, typer.Option(help="The longest prompt and context; shorter ones are measured too.")] = 512,
    batch: Annotated[int, typer.Option(help="The most sequences decoded together; fewer are measured too.")] = 16,
    dtype: Dtype = "float32",
    device: Device = "auto",
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Place prefills and decode steps on this device's measured roofline, and show where a step's time goes."""
    spec = RoofSpec(model, weights, tokens, batch, dtype, device)
    with bench_here("kvviz roofline", patient=not no_wait) as bench:
        document = document_here(spec, bench, _say_progress)
    answer(document, lambda: roofline_words.text(document), as_json)


def caches(
    model: ModelArgument,
    designs: Annotated[str, typer.Option(help="Cache designs, separated by commas.")] = ",".join(RACED),
    weights: Weights = "auto",
    prompt: Annotated[str, typer.Option(help="The prompt of every sequence.")] = STORY,
    new_tokens: Annotated[int, typer.Option(help="Tokens to decode, 2 to 192.")] = 64,
    batch: Batch = 2,
    repeats: Annotated[int, typer.Option(help="Timed passes of each design.")] = 3,
    budget: Budget = None,
    pyramid: Pyramid = False,
    dtype: Dtype = "float32",
    device: Device = "auto",
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Decode the same prompt with several cache designs; compare tokens, quality, memory, copies and time."""
    chosen = names(designs)
    spec = CachesSpec(model, chosen, weights, prompt, new_tokens, batch, repeats, dtype, device, budget, pyramid)
    begun: set[str] = set()

    def say_part(record: Record) -> None:
        if record["t"] == "part" and record["part"] not in begun:
            begun.add(record["part"])
            say(f"now {record['words']}")

    with bench_here("kvviz caches", patient=not no_wait) as bench:
        document = document_here(spec, bench, say_part)
    answer(document, lambda: cache_words.text(document), as_json)


def recall(
    model: Annotated[str, typer.Argument(help="A model that completes a fact's sentence.")] = MODEL,
    designs: Annotated[str, typer.Option(help="Lossy cache designs, separated by commas.")] = ",".join(FORGETFUL),
    budgets: Annotated[str, typer.Option(help="Percent of a text's tokens that a design with a budget keeps.")] = (
        ",".join(map(str, RecallSpec.budgets))
    ),
    weights: Weights = "auto",
    tokens: Annotated[int, typer.Option(help="Length of a text.")] = RecallSpec.tokens,
    texts: Annotated[int, typer.Option(help="Texts of each seed.")] = RecallSpec.texts,
    facts: Annotated[int, typer.Option(help="Facts that each text states, and is asked for.")] = RecallSpec.facts,
    seeds: Annotated[int, typer.Option(help="Seeds, each of which draws its own texts.")] = RecallSpec.seeds,
    dtype: Dtype = "float32",
    device: Device = "auto",
    before: Annotated[int, typer.Option(help="Budget at which some questions are also asked before; 0 for none.")] = 25,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Ask for names and numbers that a text has stated: how many each lossy cache recalls, against what it keeps."""
    percents = counts("--budgets", budgets)
    chosen = names(designs)
    spec = RecallSpec(model, chosen, percents, weights, tokens, texts, facts, seeds, dtype, device, before or None)
    with bench_here("kvviz recall", patient=not no_wait) as bench:
        document = document_here(spec, bench)
    answer({**document, "rows": recall_words.rows(document)}, lambda: recall_words.text(document), as_json)


def forgetting(
    model: ModelArgument,
    designs: Annotated[str, typer.Option(help="Designs that evict, separated by commas.")] = ",".join(FORGETTING),
    budget: Annotated[str, typer.Option(help="Tokens to keep: a number, or a percentage of the text.")] = "25%",
    pyramid: Pyramid = False,
    tokens: Annotated[int, typer.Option(help="Tokens of the held-out text to read.")] = 192,
    weights: Weights = "auto",
    dtype: Dtype = "float32",
    device: Device = "auto",
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Read a text with caches that evict; tell which tokens each forgot and how much worse it predicts for it."""
    spec = ForgettingSpec(model, names(designs), budget, tokens, weights, dtype, device, pyramid)
    with bench_here("kvviz forgetting", patient=not no_wait) as bench:
        document = document_here(spec, bench)
    answer(document, lambda: forgetting_words.text(document), as_json)


def serving(
    model: Annotated[str | None, typer.Argument(help="For shared prompts; without one, memory alone.")] = None,
    weights: Weights = "auto",
    requests: Annotated[int | None, typer.Option(help="Sequences that arrive; of a trace, its first ones.")] = None,
    rate: Annotated[float, typer.Option(help="Arrivals per tick, on average.")] = 1.0,
    slots: Annotated[int, typer.Option(help="Tokens that fit in the memory.")] = 2048,
    longest: Annotated[int, typer.Option(help="Most tokens in a sequence.")] = 256,
    seed: Annotated[int, typer.Option(help="Of the requests.")] = 0,
    share: Annotated[int, typer.Option(help="Requests that share a system prompt.")] = 4,
    system: Annotated[str, typer.Option(help="The system prompt.")] = asked.SYSTEM,
    trace: Annotated[str | None, typer.Option(help="Serve this trace: a CSV file as Azure's, or `sample`.")] = None,
    policy: Annotated[str | None, typer.Option(help="How to serve it: names, separated by commas.")] = None,
    speed: Annotated[float, typer.Option(help="How many times as fast the trace runs.")] = 1.0,
    places: Annotated[int, typer.Option(help="Most sequences that run at once in a trace.")] = 8,
    budget: Annotated[int, typer.Option(help="Most tokens of a step under chunked.")] = 64,
    shared: Annotated[int, typer.Option(help="First tokens that all prompts of a trace have in common.")] = 0,
    temperature: Annotated[float, typer.Option(help="Of a trace's requests; 0 is greedy.")] = 0.0,
    alone: Annotated[int, typer.Option(help="Requests of a trace to decode alone as well, to compare.")] = 8,
    preemption: Annotated[
        Preemption, typer.Option(help="Of a trace: recompute, or swap to host memory.")
    ] = "recompute",
    rates: Annotated[str | None, typer.Option(help="Requests a second, such as 10,20,40, or `auto`.")] = None,
    seconds: Annotated[int, typer.Option(help="The most that a sweep of rates may take.")] = LoadSpec.seconds,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Give many sequences one memory under several policies; with a model, measure what a shared prefix saves.

    With --trace or --policy, decode a trace of requests together on the model, under scheduling policies.
    With --rates, serve the same drawn requests at one rate after another: throughput against latency.
    """
    if rates is not None:
        if model is None:
            raise KvvizError("requests are served by a model: name one, such as mini-gpt2")
        given = () if rates == "auto" else numbers("--rates", rates)
        count = LoadSpec.requests if requests is None else requests
        under = policy or LoadSpec.policy
        load = LoadSpec(model, weights, under, given, seconds, count, longest, places, slots, budget, seed)
        with bench_here("kvviz serving", patient=not no_wait) as bench:
            swept = document_here(load, bench, _say_progress)
        answer(swept, lambda: load_words.text(swept), as_json)
        return
    if trace is not None or policy is not None:
        if model is None:
            raise KvvizError("a trace is served by a model: name one, such as mini-qwen3")
        coming = trace_named(trace or "sample", requests, speed)
        wanted = names(policy) if policy is not None else BatchingSpec.policies
        columns = (coming.arrivals_s, coming.prompts, coming.answers)
        batch = BatchingSpec(model, *columns, wanted, weights, places, slots, budget, shared, alone, temperature, seed)
        batch = replace(batch, preemption=preemption)
        with bench_here("kvviz serving", patient=not no_wait) as bench:
            document = {**document_here(batch, bench, _say_progress), "notes": coming.notes}
        answer(document, lambda: batching_words.text(document), as_json)
        return
    if not 2 <= share <= asked.MOST_ASKS:
        raise KvvizError(f"--share is {share}; it is a whole number from 2 to {asked.MOST_ASKS}")
    arrivals = asked.ArrivalsSpec(80 if requests is None else requests, rate, slots, longest, seed)
    specs: dict[str, Spec] = {"fragmentation": arrivals}
    if model is not None:
        specs["sharing"] = asked.SharingSpec(model, system, asked.ASKS[:share], weights)
        specs["prefixes"] = asked.PrefixesSpec(model, weights=weights)
        specs["conversation"] = asked.TalkSpec(model, asked.FIRST, asked.SECOND, asked.EDITED, weights)
    with bench_here("kvviz serving", patient=not no_wait) as bench:
        documents = {name: document_here(spec, bench, _say_progress) for name, spec in specs.items()}
    answer(documents, lambda: serving_words.text(documents), as_json)


def endpoint(
    url: Annotated[str, typer.Argument(help="A server with OpenAI's interface; its key: KVVIZ_ENDPOINT_KEY.")],
    endpoint_model: Annotated[str | None, typer.Option(help="What it calls the model, if it has several.")] = None,
    concurrency: Annotated[str, typer.Option(help="Requests at once, such as 1,2,4,8.")] = "1,2,4,8",
    requests: Annotated[int, typer.Option(min=1, max=100, help="Requests of each asker, one after another.")] = 3,
    prompt: Annotated[str, typer.Option(help="What the prompts have in common, beside a number.")] = asked.SYSTEM,
    new_tokens: Annotated[int, typer.Option(min=1, max=4096, help="Tokens to ask for.")] = 64,
    kv_events: KvEvents = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Ask a server with more and more requests at once: first token, inter-token latency, tokens a second."""
    levels = counts("--concurrency", concurrency)
    spec = ConcurrencySpec(url, endpoint_model, levels, requests, prompt, new_tokens, kv_events)
    with bench_here("kvviz endpoint", patient=not no_wait) as bench:
        document = document_here(spec, bench, _say_progress)
    answer(document, lambda: concurrency_words.text(document), as_json)


def _say_progress(record: Record) -> None:
    if record["t"] == "point":
        where = f"{record['phase']} at {record['tokens']:,} tokens x {record['batch']}"
        say(f"{record['done']} of {record['of']}, {where}: {millis(record['s'])}")
    elif record["t"] == "way":
        say(f"{record['done']} of {record['of']}, {record['title']}")
