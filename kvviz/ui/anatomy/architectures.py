"""Walks through layers that keep something else than keys and values, on tiny models of true architectures."""

from collections.abc import Mapping
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.words import human
from kvviz.decoding.scratch.listing import listing
from kvviz.experiments.architectures.spec import MOST_NEW, MOST_PROMPT, TINY, ArchitectureSpec
from kvviz.memory.formula import kv_memory
from kvviz.models.catalog.rows import ModelRow, models
from kvviz.models.spec import ModelSpec
from kvviz.server.scheduler import Scheduler
from kvviz.ui.folders import ASSETS_URL
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.component import component
from kvviz.ui.shared.experiment import looked_at, requested
from kvviz.ui.shared.fold import fold
from kvviz.ui.shared.form import Form
from kvviz.ui.shared.plain import errors_said
from kvviz.ui.shared.tables import draw_table

BYTES = 2  # of a number in bfloat16
HYBRIDS = ("qwen3-4b", "qwen3-next-80b-a3b", "jamba-v0.1", "bamba-9b")  # the first one has attention alone
STATES = {  # the kind of a model's states, by the field that only it has
    "linear_num_key_heads": "gated delta",
    "mamba_dt_rank": "Mamba",
    "mamba_n_heads": "Mamba-2",
}
RECURRENT = ("mamba2-130m", "mamba2-2.7b", "mamba-codestral-7b")
LENGTHS = (1_024, 32_768)  # tokens
LISTINGS = {  # the classes of a scene whose code is shown, in a file of `decoding/scratch`
    "latent": ("latent.py", ("Expanded", "Absorbed")),
    "delta": ("delta.py", ("GatedDelta",)),
    "mamba": ("mamba2.py", ("Recurrent", "Chunked")),
    "indexer": ("indexer.py", ("Indexer",)),
    "shared": ("yoco.py", ("Yoco",)),
}
_DRAWN = {
    scene: component(f"kvviz_{scene}", f"anatomy/{scene}.js", f"kv-{scene} kv-anatomy kv-live") for scene in LISTINGS
}


def walk(scheduler: Scheduler, form: Form, bar: DeltaGenerator) -> None:
    """Walk through the chosen layer of a tiny model, and count the same in published models."""
    scene = form["scene"]
    work = _asked(scheduler, form, bar, scene)
    if work is not None:
        file, names = LISTINGS[scene]
        listings = {name.lower(): listing(name, file).as_dict() for name in names}
        _DRAWN[scene](key=scene, data={**work, "assets": ASSETS_URL, "listings": listings})
    st.caption(TEXTS["anatomy"]["untrained"].format(title=TINY[scene]["title"]))
    if scene == "shared":
        st.caption(TEXTS["anatomy"]["untrained_yoco"])
    _think(scene)
    if rows := _published(scene):
        hybrid = "Published models: layers with keys and values, and layers with a state"
        st.subheader(hybrid if scene == "delta" else "The same in published models", anchor=False)
        with st.container(horizontal=True, gap="medium", key="published"):
            draw_table(rows)
            st.caption(TEXTS["anatomy"]["under"][scene])


def _published(scene: str) -> list[dict[str, object]]:
    """Return the rows of the table of published models; [] for a layer whose bytes another layer's table shows."""
    rows = models()
    match scene:
        case "latent":
            return [_saved(row) for row in rows.values() if row.config.get("kv_lora_rank")]
        case "delta":
            return [_hybrid(rows[name]) for name in HYBRIDS]
        case "mamba":
            return [_constant(rows[name]) for name in RECURRENT]
        case "shared":
            return [_spared(row) for row in rows.values() if row.config.get("num_kv_shared_layers")]
    return []


def _asked(scheduler: Scheduler, form: Form, bar: DeltaGenerator, scene: str) -> dict[str, object] | None:
    """Draw the prompt's form; return what the walk is drawn from, None where it can't be done."""
    chosen = f"T{TINY[scene]['title'].removeprefix('a t')}, random weights: {form['text']}"
    with bar, st.popover(chosen, icon=":material/tune:", key="a_tiny"):
        text = st.text_input("Prompt", max_chars=MOST_PROMPT, **form.value("text"))
        new = st.number_input("New tokens", **form.within("steps", 2, MOST_NEW))
    form.write()
    with errors_said():
        spec = ArchitectureSpec(scene, text, new)
        work = requested(scheduler, spec, key=scene)
        return looked_at(work, spec, recorded_as(scene)) if work is not None else None
    return None


def recorded_as(scene: str) -> str:
    """The name of the recording of this scene."""
    return f"{ArchitectureSpec.kind}-{scene}"


def _think(scene: str) -> None:
    """Draw a question about this layer, with its answer folded up."""
    said = TEXTS["anatomy"]["think"][scene]
    st.header("Stop and think", anchor=False)
    fold(said["question"], f"a_think_{scene}", lambda: st.markdown(said["answer"]))


def _saved(model: ModelRow) -> dict[str, object]:
    """What a layer of a published model keeps of a token, and what its heads' own keys and values would be."""
    config, spec = model.config, ModelSpec.from_config(model.config, name=model.id)
    layer = spec.layers[-1]
    row, heads = layer.key_dim + layer.value_dim, config["num_attention_heads"]
    head = numbers_of_head(config)
    return {
        "model": model.title,
        "latent row, numbers": f"{layer.key_dim} + {layer.value_dim} = {row}",
        "keys and values of all heads": f"{heads} × {head} = {heads * head:,}",
        "times smaller": f"{heads * head / row:.1f}",
        "a token in all layers, bfloat16": human(row * len(spec.layers) * BYTES),
    }


def numbers_of_head(config: Mapping[str, Any]) -> int:
    """How many numbers of a token one head would keep as key and value in a model that keeps latent rows."""
    return sum(config[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))


def _hybrid(model: ModelRow) -> dict[str, object]:
    """How many layers of a published model have a growing cache and how many a state, and the bytes of both."""
    spec = ModelSpec.from_config(model.config, name=model.id)
    held = [kv_memory(spec, tokens, dtype="bfloat16") for tokens in LENGTHS]
    states = sum(layer.state_bytes for layer in held[0].layers)
    return {
        "model": model.title,
        "layers with keys and values": sum(layer.nbytes > layer.state_bytes for layer in held[0].layers),
        "layers with a state": sum(layer.state_bytes > 0 for layer in held[0].layers),
        "kind of state": next((kind for field, kind in STATES.items() if field in model.config), "none"),
        "states": human(states),
        **{f"keys and values, {one.tokens:,} tokens": human(one.total_bytes - states) for one in held},
    }


def _constant(model: ModelRow) -> dict[str, object]:
    """The states of a published model, beside the keys and values of attention that is as wide and as deep."""
    spec = ModelSpec.from_config(model.config, name=model.id)
    states = kv_memory(spec, 1, dtype="bfloat16").total_bytes
    width, layers = model.config["hidden_size"], len(spec.layers)
    token = 2 * width * BYTES * layers  # a key and a value as wide as the model, in each layer
    return {
        "model": model.title,
        "layers × width": f"{layers} × {width:,}",
        "states, any number of tokens": human(states),
        **{f"keys and values, {tokens:,} tokens": human(tokens * token) for tokens in LENGTHS},
        "tokens whose K and V are as large": f"{states / token:,.0f} tokens",
    }


def _spared(model: ModelRow) -> dict[str, object]:
    """How many layers of a published model read another's keys and values, and the bytes with and without that."""
    alone = {**model.config, "num_kv_shared_layers": 0}
    held = [
        kv_memory(ModelSpec.from_config(config, name=model.id), LENGTHS[1], dtype="bfloat16")
        for config in (model.config, alone)
    ]
    return {
        "model": model.title,
        "layers": len(held[0].layers),
        "of them without keys and values": sum(layer.nbytes == 0 for layer in held[0].layers),
        f"cache, {LENGTHS[1]:,} tokens, bfloat16": human(held[0].total_bytes),
        "with their own in every layer": human(held[1].total_bytes),
    }
