"""`kvviz probe`: the bytes of a KV cache, read from a real forward."""

from kvviz.cli.calc import memory_text
from kvviz.cli.options import AsJson, Batch, CachedTokens, Dtype, ModelArgument, SourceTokens, source_with_config
from kvviz.cli.output import answer
from kvviz.memory.formula import kv_memory
from kvviz.models.spec import ModelSpec


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
