"""The FLOP formula against torch's flop counter, for every decoder that the installed transformers registers.

`read_shape` reads each type's default config and `forward_flops` runs it on the meta device: a prefill and the step
after it, at a few numbers of tokens and batches. A type is exact if both agree to the FLOP in each case, wrong if they
differ in one, and refused if either side says why it can't count.

    python bench/flops.py --json
    python bench/flops.py --only llama,jamba
"""

from collections.abc import Callable
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

if not __package__:
    import checkout  # noqa: F401

from bench.each_type import Config, Row, arguments, document, longest, row_of
from kvviz.base.errors import ConfigError
from kvviz.cost.flops import cached_step, prefill, total_flops
from kvviz.cost.shape import Shape, read_shape
from kvviz.decoding.meta_model import on_meta, weightless
from kvviz.decoding.meta_probe import Decoder, in_one_sentence, position_limit
from kvviz.models.config_fields import checked

Case = dict[str, Any]


def cases(config: Config) -> list[Case]:
    """The sizes at which each type is compared."""
    source = {"source_tokens": 25} if config.get("is_encoder_decoder") else {}
    sizes = ((41, 1), (71, 2), (longest(config, position_limit), 1))
    return [{"tokens": tokens, "batch": batch, **source} for tokens, batch in sizes]


def forward_flops(
    config: Config, *, tokens: int, batch: int = 1, source_tokens: int | None = None
) -> tuple[int | None, int]:
    """Count the FLOPs of a prefill of `tokens` - 1 tokens and of the step after it, with torch's counter.

    The head runs for the last position only, if the model supports that. Experts run as one product per token and
    chosen expert. An encoder does not count. The prefill is None if it is a long one of a recurrent model, which would
    be a long Python loop. Raises ConfigError for a model that can't be built or run, and for fewer than 2 tokens.
    """
    checked("tokens", tokens, 2)
    with on_meta(), in_one_sentence(config, tokens):
        model = weightless(config, "bfloat16")
        for module in model.modules():
            config_of_module = getattr(module, "config", None)
            if config_of_module is not None and hasattr(config_of_module, "_experts_implementation"):
                config_of_module._experts_implementation = "batched_mm"
        decoder = Decoder(model, tokens, batch, source_tokens, logits_to_keep=1)
        prefilled = counted(lambda: decoder.prefill(tokens - 1))
        stepped = counted(decoder.step)
        return None if decoder.shortened else prefilled, stepped


def counted(act: Callable[[], None]) -> int:
    with FlopCounterMode(display=False) as counter:
        act()
    return counter.get_total_flops()


def difference(shape: Shape, config: Config, case: Case) -> str:
    """Where formula and counter differ; an empty text if they agree."""
    before = {**case, "tokens": case["tokens"] - 1}
    ours = total_flops(shape, prefill(shape, **before)), total_flops(shape, cached_step(shape, **case))
    theirs = forward_flops(config, **case)
    for name, our, their in zip(("prefill", "step"), ours, theirs, strict=True):
        if their is not None and our != their:
            return f"{name}: {our:,} FLOPs, the counter {their:,}, at {', '.join(map(str, case.values()))}"
    return ""


def compared(model_type: str, *, alone: bool) -> Row:
    """How formula and counter agree on a type's default config."""
    row = {"model_type": model_type, "outcome": "exact", "step_flops": None, "why": ""}
    return row_of(row, _agreement, alone=alone, refused="refused by the counter")


def _agreement(config: Config) -> Row:
    try:
        shape = read_shape(config)
    except ConfigError as error:
        return {"outcome": "refused by the formula", "why": str(error)}
    try:
        asked = cases(config)
        wrong = next(filter(None, (difference(shape, config, case) for case in asked)), "")
    except ConfigError as error:
        return {"outcome": "refused by the counter", "why": str(error)}
    step = total_flops(shape, cached_step(shape, **asked[0]))
    return {"outcome": "wrong" if wrong else "exact", "step_flops": step, "why": wrong}


def line(row: Row) -> str:
    return f"{row['model_type']:28} {row['outcome']:23} {row['step_flops'] or '':>16}  {row['why']}"


if __name__ == "__main__":
    document(arguments(__doc__.splitlines()[0]).parse_args(), compared, line)
