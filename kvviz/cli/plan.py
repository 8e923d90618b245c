"""`kvviz plan`: whether a model runs on some cards, with how many sequences, and what to change if it does not fit."""

import re
from typing import Annotated

import typer

from kvviz.base.errors import KvvizError
from kvviz.base.precision import PRECISIONS, WEIGHT_BITS
from kvviz.base.words import human, human_range
from kvviz.cli.options import AsJson, ModelOrGguf, gguf_source, source_with_config
from kvviz.cli.output import answer
from kvviz.deployment.plan import VLLM_UTILIZATION, Asked, Option, Plan, options, reach, short
from kvviz.deployment.plan import plan as plan_for

_CARD = "An accelerator by name (L40S, rtx-4090, h100-sxm) or its memory (24GB)."
_VIEW = "Whose cache: vllm if not given, for a GGUF file llama.cpp; or hf-dynamic, hf-static, sglang, architecture."
_CHUNK = "Tokens of a prompt at once; if not given the engine's default, or the whole prompt."
_UTILIZATION = f"Share of each card that may be used; if not given {VLLM_UTILIZATION} for vLLM, else all of it."


def plan(
    model: ModelOrGguf,
    card: Annotated[str, typer.Option(help=_CARD)] = "h100-sxm",
    count: Annotated[int, typer.Option(help="Cards of that kind.")] = 1,
    context: Annotated[str, typer.Option(help="Tokens of each sequence, such as 8192 or 32k.")] = "8k",
    sequences: Annotated[int | None, typer.Option(help="Decoded at once; as many as fit if not given.")] = None,
    dtype: Annotated[str | None, typer.Option(help=f"Of the cache: {', '.join(PRECISIONS)}.")] = None,
    weights_dtype: Annotated[str, typer.Option(help=f"Of the weights: {', '.join(WEIGHT_BITS)}.")] = "bfloat16",
    view: Annotated[str | None, typer.Option(help=_VIEW)] = None,
    tensor_parallel: Annotated[int | None, typer.Option(help="Cards that share each layer; all if not given.")] = None,
    pipeline_parallel: Annotated[int, typer.Option(help="Stages that share the layers.")] = 1,
    data_parallel: Annotated[int, typer.Option(help="Copies that share the requests.")] = 1,
    expert_parallel: Annotated[
        bool, typer.Option("--expert-parallel", help="Spread the experts over all cards.")
    ] = False,
    attention: Annotated[str, typer.Option(help="sdpa, or eager, which makes the whole matrix of scores.")] = "sdpa",
    chunk: Annotated[int | None, typer.Option(help=_CHUNK)] = None,
    utilization: Annotated[float | None, typer.Option(help=_UTILIZATION)] = None,
    offload: Annotated[float, typer.Option(help="GiB of each card's weights that stay in the host's memory.")] = 0.0,
    params: Annotated[float | None, typer.Option(help="Billions of parameters, if nobody states them.")] = None,
    as_json: AsJson = False,
) -> None:
    """Plan a deployment: what each card holds, how many sequences fit, and what else would fit on these cards."""
    from_gguf = gguf_source(model)
    source = from_gguf or source_with_config(model)
    if not 0 <= offload < 10_000:
        raise KvvizError(f"--offload is {offload}; it is a number of GiB from 0 to 10,000")
    if params is not None and not 0 < params < 100_000:
        raise KvvizError(f"--params is {params}; it is a number of billions above 0, such as 8.03")
    asked = Asked(
        card=card,
        count=count,
        tokens=tokens_of(context),
        sequences=sequences,
        dtype=dtype or ("float16" if from_gguf else "bfloat16"),
        weights=weights_dtype,
        view=view or ("llama.cpp" if from_gguf else "vllm"),
        tensor=tensor_parallel,
        pipeline=pipeline_parallel,
        data=data_parallel,
        experts=expert_parallel,
        attention=attention,
        chunk=chunk,
        utilization=utilization,
        offload_bytes=round(offload * 2**30),
    )
    stated = round(params * 1e9) if params else source.params
    found = plan_for(source.config or {}, asked, name=source.model, params=stated)
    others = options(source.config or {}, asked, name=source.model, params=stated)
    document = {**found.to_dict(), "options": [vars(option) for option in others]}
    answer(document, lambda: plan_text(found, others), as_json)


def tokens_of(text: str) -> int:
    """Read a number of tokens: 8192, 32k (32,768) or 1M (1,048,576). Raises KvvizError."""
    found = re.fullmatch(r"(\d{1,12})([kKmM]?)", text.strip())
    if not found or not int(found[1]):
        raise KvvizError(f"--context is {text[:40]!r}; it is a number of tokens, such as 8192, 32k or 1M")
    return int(found[1]) * {"": 1, "k": 2**10, "m": 2**20}[found[2].lower()]


_VERDICT = {
    True: "It fits",
    None: "It may fit: what the driver and the engine take decides",
    False: "It does not fit",
}


def plan_text(found: Plan, others: tuple[Option, ...]) -> str:
    """The plan as text: verdict, parts of the fullest card, changes, and what the cards hold otherwise."""
    total, budget = human_range(found.least, found.most), human(found.budget_bytes)
    lines = [found.sentence, f"{_VERDICT[found.fits]}: {total} of {budget} on each card."]
    lines += [f"  {part.name}: {human_range(part.least, part.most)} ({part.says})" for part in found.parts]
    certain, possible = found.most_sequences
    most = f"{certain:,} for certain" + (f", up to {possible:,}" if possible > certain else "")
    lines.append(f"Sequences of {short(found.asked.tokens)} tokens that fit: {most}.")
    if found.context:
        lines.append(f"Longest context of {_counted(found.sequences)}: {reach(found.context, found.trained)}.")
    if found.changes:
        lines += ["What would make it fit:", *(f"  {change.sentence}" for change in found.changes)]
    lines.append("What these cards hold, one sequence or as many of that context as fit:")
    for option in others:
        longest = reach(option.context, found.trained) if option.context else "not one token"
        lines.append(f"  {option.weights} weights, {option.dtype} KV: {longest}; {_counted(option.sequences)}")
    return "\n".join([*lines, *found.notes])


def _counted(sequences: int) -> str:
    return f"{sequences:,} sequence{'' if sequences == 1 else 's'}"
