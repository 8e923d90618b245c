"""The memory page's widgets: what is asked, and the parts of the answer."""

import json
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.precision import PRECISIONS, WEIGHT_BITS
from kvviz.base.settings import settings
from kvviz.memory.calculator import (
    MOST_MODELS,
    Asked,
    from_params,
    in_link,
    is_own,
    own_title,
    pack,
    parse_config,
    slim,
    to_params,
    unpack,
)
from kvviz.memory.views import VIEWS
from kvviz.models.catalog.rows import examples, models
from kvviz.models.hub_config import fetch_config
from kvviz.server.script_slots import aside
from kvviz.ui.shared import filled, links
from kvviz.ui.shared.files import content
from kvviz.ui.shared.plain import plain

OWN = "Your own config"
_LENGTHS = (512, 2048, 8192, 32768, 131072)


def ask() -> Asked:
    """Draw the form, seeded by the link in the address bar; the link follows what is chosen."""
    _restore()
    _examples()
    with st.container(border=True):
        asked = replace(_numbers(_which_models()), gpu=st.session_state.get("m_gpu", Asked().gpu))
    links.write("memory", to_params(asked))
    if in_link(asked) != asked.models:
        st.caption("This config is too long for the link in the address bar; the link holds the rest.")
    return asked


def _restore() -> None:
    """Take over a link, or, back from another page, this page's own last address."""
    came = links.arrived("memory")
    if not came and "m_family" in st.session_state:
        return
    asked, problems = from_params(came or links.last("memory"))
    for problem in problems:
        st.warning(plain(problem))
    _fill(asked)


def _fill(asked: Asked) -> None:
    """Every widget set to what is asked."""
    main, *others = asked.models
    own = st.session_state.setdefault("m_own", {})
    own.update({key: own_title(unpack(key)) for key in asked.models if is_own(key)})
    st.session_state["m_family"] = OWN if is_own(main) else models()[main].family
    st.session_state["m_own_main" if is_own(main) else "m_model"] = main
    st.session_state["m_others"] = others
    for name in ("tokens", "batch", "dtype", "weights", "view", "beams", "tensor_parallel", "gpu"):
        st.session_state[f"m_{name}"] = getattr(asked, name)
    st.session_state["m_source_tokens"] = asked.source_tokens


def _examples() -> None:
    rows = {row.id: row for row in examples()}

    def take() -> None:
        row = rows.get(st.session_state.m_example or "")
        if row is not None:
            _fill(
                replace(
                    Asked(),
                    models=row.models,
                    tokens=row.tokens[-1],
                    batch=row.batch,
                    dtype=row.dtype,
                    weights=row.weights_dtype[0],
                    view=row.view,
                )
            )

    st.pills(
        "Examples",
        list(rows),
        format_func=lambda name: rows[name].title,
        key="m_example",
        on_change=take,
        help="Each sets the form below; its table shows all of its cases.",
    )


def _which_models() -> tuple[str, ...]:
    families = list(dict.fromkeys(row.family for row in models().values()))
    left, middle, right = st.columns([2, 3, 5], gap="medium")
    with left:
        offered = [*families, OWN]
        family = st.selectbox("Family", offered, filled.index("m_family", offered), key="m_family")
    with middle:
        main = _own_config() if family == OWN else _size(family)
    with right:
        own = st.session_state.setdefault("m_own", {})
        offered = [key for key in (*models(), *own) if key != main]
        others = st.multiselect(
            "Compare with",
            offered,
            default=[key for key in filled.value("m_others", ()) if key in offered],
            key="m_others",
            max_selections=MOST_MODELS - 1,
            format_func=lambda key: own[key] if is_own(key) else models()[key].title,
            placeholder="up to five more models",
        )
    return (main, *(key for key in others if key != main))


def _size(family: str) -> str:
    ids = [row.id for row in models().values() if row.family == family]
    if st.session_state.get("m_model") not in ids:
        st.session_state["m_model"] = ids[0]
    at = filled.index("m_model", ids)
    return st.selectbox("Model", ids, at, key="m_model", format_func=lambda name: models()[name].title)


def _own_config() -> str:
    """A pasted, dropped or fetched config; the last one that could be read stays until another can."""
    given = settings()
    ways = ["Paste", "File", *(["Hugging Face"] if given.hub_models or not given.public else [])]
    how = st.segmented_control("From", ways, default="Paste", key="m_how")
    try:
        text = _own_text(how or "Paste")
        if text is not None:
            key = pack(slim(parse_config(text)))
            st.session_state["m_own_main"] = key
            st.session_state["m_own"][key] = own_title(unpack(key))
    except KvvizError as error:
        st.warning(plain(error))
    return st.session_state.get("m_own_main") or next(iter(models()))


def _own_text(how: str) -> str | None:
    if how == "Paste":
        return st.text_area("config.json", key="m_paste", height=120, placeholder='{"model_type": …}').strip() or None
    if how == "File":
        file = st.file_uploader("config.json", type="json", key="m_file")
        return content(file).decode("utf-8", "replace") if file else None
    if settings().public:
        return _fetched(st.selectbox("Hugging Face id", settings().hub_models, key="m_hub"))
    name = st.text_input("Hugging Face id", key="m_hub", placeholder="owner/name").strip()
    return _fetched(name) if name else None


def _fetched(name: str) -> str:
    """The config of a Hugging Face id, asked for once per session."""
    kept = st.session_state.setdefault("m_fetched", {})
    if name not in kept:
        with st.spinner(f"Asking the Hub for the config of {plain(name)}"), aside():
            kept[name] = json.dumps(fetch_config(name))
    return kept[name]


def _numbers(chosen: Sequence[str]) -> Asked:
    one, two, three, four, five = st.columns([2, 1.2, 2, 2, 3])
    tokens = one.number_input(
        "Tokens in the cache",
        1,
        2**30,
        filled.value("m_tokens"),
        key="m_tokens",
        help="Prompt and new tokens together.",
    )
    batch = two.number_input(
        "Sequences", 1, 100_000, filled.value("m_batch"), key="m_batch", help="Requests at once: the batch."
    )
    view = five.selectbox(
        "Whose bytes",
        list(VIEWS),
        filled.index("m_view", list(VIEWS)),
        key="m_view",
        format_func=lambda name: VIEWS[name].title,
        help="  \n".join(f"**{row.title}**: {row.rule}" for row in VIEWS.values()),
    )
    offered = [name for name in PRECISIONS if name in VIEWS[view].dtypes]
    if st.session_state.get("m_dtype") not in offered:
        st.session_state["m_dtype"] = "bfloat16"
    dtype = three.selectbox(
        "Cache dtype",
        offered,
        filled.index("m_dtype", offered),
        key="m_dtype",
        format_func=lambda name: name,
        help=PRECISIONS[offered[0]].title,
    )
    kinds = list(WEIGHT_BITS)
    weights = four.selectbox(
        "Weights dtype",
        kinds,
        filled.index("m_weights", kinds),
        key="m_weights",
        help="The cache does not follow it.",
    )
    more = _more()
    return Asked(tuple(chosen), int(tokens), int(batch), dtype, weights, view, **more)


def _more() -> dict:
    with st.expander("Beams, several devices, encoder"):
        one, two, three = st.columns(3)
        beams = one.number_input(
            "Beams", 1, 64, filled.value("m_beams"), key="m_beams", help="Beam search keeps a cache for each beam."
        )
        devices = two.number_input(
            "Tensor-parallel devices",
            1,
            64,
            filled.value("m_tensor_parallel"),
            key="m_tensor_parallel",
            help="KV heads are shared out, or repeated where there are fewer of them; the figures are one device's.",
        )
        source = three.number_input(
            "Encoder tokens",
            1,
            2**30,
            value=filled.value("m_source_tokens"),
            key="m_source_tokens",
            placeholder="as the tokens",
            help="Length of the encoder's output in encoder-decoders; Whisper's is fixed at 1,500.",
        )
    return {
        "beams": int(beams),
        "tensor_parallel": int(devices),
        "source_tokens": int(source) if source else None,
    }
