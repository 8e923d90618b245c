"""The memory formula against the model itself, for every decoder that the installed transformers registers.

`ModelSpec.from_config` reads each type's default config and `probe` runs it on the meta device, at a few numbers of
tokens, batches and precisions. A type is exact if every layer's bytes agree in each case, wrong if they differ in one,
and refused if either side says that it can't read it.

    python bench/decoders.py --json
    python bench/decoders.py --only llama,jamba
    python bench/decoders.py --out docs/decoders.md
"""

from pathlib import Path
from typing import Any

if not __package__:
    import checkout  # noqa: F401

from bench.each_type import Config, Row, arguments, counted, document, longest, row_of
from kvviz.base.errors import ConfigError
from kvviz.decoding.meta_probe import position_limit, probe
from kvviz.memory.formula import kv_memory
from kvviz.models.spec import ModelSpec

Case = dict[str, Any]


def cases(config: Config) -> list[Case]:
    """The sizes at which each type is compared."""
    source = {"source_tokens": 25} if config.get("is_encoder_decoder") else {}
    return [
        {"tokens": 40, "batch": 1, "dtype": "bfloat16"},
        {"tokens": 40, "batch": 2, "dtype": "float32", **source},
        {"tokens": longest(config, position_limit), "batch": 1, "dtype": "bfloat16"},
    ]


def difference(spec: ModelSpec, config: Config, case: Case) -> tuple[int, int, str]:
    """Total bytes by formula and by probe, and where they differ; an empty text if they agree."""
    formula, probed = kv_memory(spec, view="hf-dynamic", **case), probe(config, **case)
    ours, theirs = ([row.nbytes for row in memory.layers] for memory in (formula, probed))
    at = f"at {', '.join(str(value) for value in case.values())}"
    if len(ours) != len(theirs):
        return formula.total_bytes, probed.total_bytes, f"{len(ours)} layers, the model has {len(theirs)}, {at}"
    apart = [i for i, (our, their) in enumerate(zip(ours, theirs, strict=True)) if our != their]
    why = f"layer {apart[0]}: {ours[apart[0]]:,} B, the model keeps {theirs[apart[0]]:,} B, {at}" if apart else ""
    return formula.total_bytes, probed.total_bytes, why


def compared(model_type: str, *, alone: bool) -> Row:
    """How formula and probe agree on a type's default config."""
    row = {"model_type": model_type, "outcome": "exact", "spec_bytes": None, "probe_bytes": None, "why": ""}
    return row_of(row, _agreement, alone=alone, refused="refused by probe")


def _agreement(config: Config) -> Row:
    try:
        spec = ModelSpec.from_config(config)
    except ConfigError as error:
        return {"outcome": "refused by spec", "why": str(error)}
    found: Row = {}
    try:
        for case in cases(config):
            ours, theirs, why = difference(spec, config, case)
            found = {"spec_bytes": ours, "probe_bytes": theirs, **found}  # the first case's bytes stay
            if why:
                return {**found, "outcome": "wrong", "why": why}
    except ConfigError as error:
        return {**found, "outcome": "refused by probe", "why": str(error)}
    return found


def _size(row: Row) -> str:
    return "" if row["probe_bytes"] is None else f"{row['probe_bytes']:,}"


def line(row: Row) -> str:
    return f"{row['model_type']:28} {row['outcome']:17} {_size(row):>15}  {row['why']}"


def markdown(found: dict[str, Any]) -> str:
    """The document as a page: the counts, then a table for each group."""
    about = found["environment"]
    text = f"# Spec against probe, transformers {about['transformers']}, torch {about['torch']}\n"
    for name, rows in (("Decoders", found["rows"]), ("Encoder-decoders", found["encoder_decoders"]["rows"])):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in counted(rows).items())
        text += f"\n## {name}: {counts}\n\n"
        text += "| model_type | outcome | bytes, 40 tokens, bfloat16 | why |\n|---|---|---:|---|\n"
        for row in rows:
            text += f"| {row['model_type']} | {row['outcome']} | {_size(row)} | {row['why'].replace('|', '/')} |\n"
    return text


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a markdown table too")
    options = parser.parse_args()
    found = document(options, compared, line)
    if options.out:
        options.out.write_text(markdown(found))


if __name__ == "__main__":
    main()
