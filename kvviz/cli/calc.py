"""`kvviz calc`, `probe` and `cost`: what a model's cache holds and what a decode step costs."""

from dataclasses import replace
from typing import Annotated

import typer

from kvviz.base.errors import KvvizError
from kvviz.base.precision import PRECISIONS, WEIGHT_BITS
from kvviz.base.words import human
from kvviz.cli.options import (
    AsJson,
    Batch,
    CachedTokens,
    Dtype,
    ModelArgument,
    ModelOrGguf,
    SourceTokens,
    gguf_source,
    source_with_config,
)
from kvviz.cli.output import answer
from kvviz.cost import flops
from kvviz.cost.shape import read_shape
from kvviz.memory.calculator import Asked, memory_of
from kvviz.memory.engine_views import VIEWS
from kvviz.memory.formula import Memory, kv_memory
from kvviz.memory.llama_cpp import UBATCH, USUAL
from kvviz.models.gguf.config import FileWeights, weights_in
from kvviz.models.spec import ModelSpec

_DTYPE = f"Of the cache: {', '.join(PRECISIONS)}; bfloat16 if not given, for a GGUF file float16."
_VIEW = f"Whose bytes: {', '.join(VIEWS)}; the first if not given, for a GGUF file the last."
_FLASH = "llama.cpp's -fa; without it values are stored transposed, and padded if layers differ."


def calc(
    model: ModelOrGguf,
    tokens: CachedTokens = 1024,
    batch: Batch = 1,
    dtype: Annotated[str | None, typer.Option("--dtype", "--cache-type-k", "-ctk", help=_DTYPE)] = None,
    weights_dtype: Annotated[str | None, typer.Option(help=f"Of the weights: {', '.join(WEIGHT_BITS)}.")] = None,
    view: Annotated[str | None, typer.Option(help=_VIEW)] = None,
    tensor_parallel: Annotated[int, typer.Option(help="Devices that share the heads; bytes are per device.")] = 1,
    beams: Annotated[int, typer.Option(help="Beams of each sequence.")] = 1,
    source_tokens: SourceTokens = None,
    cache_type_v: Annotated[
        str, typer.Option("--cache-type-v", "-ctv", help="llama.cpp: of the values, if not that of the keys.")
    ] = "",
    flash_attention: Annotated[bool, typer.Option(help=_FLASH)] = True,
    swa_full: Annotated[bool, typer.Option("--swa-full", help="llama.cpp: windows get cells for all tokens.")] = False,
    unified: Annotated[bool, typer.Option("--kv-unified", help="llama.cpp: all sequences share their cells.")] = False,
    ubatch: Annotated[int, typer.Option("--ubatch-size", "-ub", help="llama.cpp: tokens on top of a window.")] = UBATCH,
    as_json: AsJson = False,
) -> None:
    """Compute the bytes of a model's KV cache by formula, layer by layer; of a GGUF file by its header alone."""
    from_gguf = gguf_source(model)
    source = from_gguf or source_with_config(model)
    config = source.config or {}
    spec = ModelSpec.from_config(config, name=source.model, source=source.origin)
    usual = ("float16", "llama.cpp") if from_gguf else ("bfloat16", "architecture")
    dtype, view, file = dtype or usual[0], view or usual[1], weights_in(config) if from_gguf else None
    weights = weights_dtype or (dtype if dtype in WEIGHT_BITS else "bfloat16")
    asked = Asked((), tokens, batch, dtype, weights, view, beams, tensor_parallel, source_tokens)
    asked = replace(
        asked,
        values=cache_type_v,
        flash_attention=flash_attention,
        swa_full=swa_full,
        unified=unified,
        ubatch=ubatch,
    )
    if view != "llama.cpp" and replace(asked, view="llama.cpp").llama_cpp != USUAL:
        raise KvvizError(
            f"-ctv, --swa-full, --kv-unified and flash attention belong to --view llama.cpp, not to {view}"
        )
    memory = memory_of(spec, asked, source.params, file)
    document = {**memory.to_dict(), **({"gguf": config["gguf"]} if from_gguf else {})}
    answer(document, lambda: "\n".join([memory_text(memory), *([weights_text(file)] if file else [])]), as_json)


def weights_text(file: FileWeights) -> str:
    """The weights of a GGUF file as one line."""
    types = ", ".join(f"{name} {human(nbytes)} in {tensors:,} tensors" for name, tensors, _, nbytes in file.types)
    return f"weights: {file.nbytes:,} B ({human(file.nbytes)}), {file.parameters:,} parameters: {types}"


def memory_text(memory: Memory) -> str:
    """The document of `calc` and `probe` as one line, and what has to be said beside it as further ones."""
    each = f", each of {memory.tensor_parallel} devices" if memory.tensor_parallel > 1 else ""
    sequences = f" x {memory.batch}" + (f" x {memory.beams} beams" if memory.beams > 1 else "")
    what = f"{memory.model}, {memory.tokens:,} tokens{sequences}, {memory.dtype}, {memory.view}{each}"
    size = f"{memory.total_bytes:,} B ({human(memory.total_bytes)}), {memory.per_token_bytes:,} B per additional token"
    reserved = f", {memory.reserved_bytes:,} B reserved" if memory.reserved_bytes != memory.total_bytes else ""
    return "\n".join([f"{what}: {size}{reserved}", *memory.notes])


def probe(
    model: ModelArgument,
    tokens: CachedTokens = 1024,
    batch: Batch = 1,
    dtype: Dtype = "bfloat16",
    source_tokens: SourceTokens = None,
    as_json: AsJson = False,
) -> None:
    """Read the bytes of the KV cache from the model itself, built without weights on the meta device."""
    from kvviz.decoding import meta_probe

    source = source_with_config(model)
    # refuses bad numbers in the words of `calc`
    kv_memory(ModelSpec("", ()), tokens, batch=batch, dtype=dtype, view="hf-dynamic", source_tokens=source_tokens)
    memory = meta_probe.probe(
        source.config or {}, tokens=tokens, batch=batch, dtype=dtype, name=source.model, source_tokens=source_tokens
    )
    answer(memory.to_dict(), lambda: memory_text(memory), as_json)


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
