"""`kvviz cost`: the FLOPs and bytes of one decode step."""

from typing import Annotated

import typer

from kvviz.base.precision import WEIGHT_BITS
from kvviz.cli.options import AsJson, Batch, ModelArgument, SourceTokens, source_with_config
from kvviz.cli.output import answer
from kvviz.cost import flops
from kvviz.cost.shape import read_shape


def cost(
    model: ModelArgument,
    tokens: Annotated[int, typer.Option(help="Tokens in the context after the step, its new token included.")] = 1024,
    batch: Batch = 1,
    dtype: Annotated[str, typer.Option(help=f"Of weights and cache: {', '.join(WEIGHT_BITS)}.")] = "bfloat16",
    source_tokens: SourceTokens = None,
    as_json: AsJson = False,
) -> None:
    """Count the FLOPs and bytes of one decode step, with the cache and without it."""
    source = source_with_config(model)
    shape = read_shape(source.config or {}, name=source.model, source=source.origin)
    document = flops.document(shape, tokens, batch=batch, dtype=dtype, source_tokens=source_tokens)
    answer(document, lambda: flops.text(document), as_json)
