"""The memory page's form: models, sizes, precisions and whose bytes."""

import base64
import binascii
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvviz.base.errors import KvvizError
from kvviz.base.precision import PRECISIONS, WEIGHT_BITS
from kvviz.base.settings import settings
from kvviz.memory import calculator
from kvviz.memory.calculator import MOST_MODELS, Asked, Config, is_own, own_title
from kvviz.memory.engine_views import VIEWS
from kvviz.models.catalog.rows import examples, models
from kvviz.models.gguf.fetch import config_in_bytes, config_on_the_hub, on_the_hub
from kvviz.models.gguf.header import MAGIC
from kvviz.models.hub_config import fetch_config
from kvviz.models.sources import parse_config
from kvviz.server.script_slots import aside
from kvviz.ui.folders import ASSETS_URL
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.component import component
from kvviz.ui.shared.experiment import run_bar
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.plain import errors_said, plain

OWN = "Your own config"
_PLACES = "owner/name, or owner/name/file.gguf"
_HELP = TEXTS["memory"]["llama_cpp"]
_FAMILY, _MODEL, _OTHERS = 122, 146, 286  # pixels: all fields stand in one row of a page 1280 wide
_TOKENS, _BATCH = 146, 120
_LLAMA_CPP = ("values", "flash_attention", "swa_full", "unified", "ubatch")
_NUMBERS = (
    *("tokens", "batch", "dtype", "weights", "view", "beams", "tensor_parallel", "source_tokens", "gpu"), *_LLAMA_CPP
)  # fmt: skip

_file = component("kvviz_config_file", "memory/file.js", "kv-file")


def memory_form() -> Form:
    """The page's fields, as the link that arrived or an earlier visit has filled them.

    `own` are the configs that this session has seen, packed; `own_main` is the one that counts as the main model.
    """
    first = _values(Asked())
    form = Form("memory", "m_", own=Field(()), own_main=Field(""), **{name: Field(first[name]) for name in first})
    if asked := form.read_whole(calculator.from_params):
        _fill(form, asked)
    return form


def _values(asked: Asked) -> dict[str, object]:
    """What the fields hold for what is asked; a config of one's own leaves the catalog's model as it is."""
    main, *others = asked.models
    chosen = {"family": OWN, "own_main": main} if is_own(main) else {"family": models()[main].family, "model": main}
    return {**chosen, "others": others, **{name: getattr(asked, name) for name in _NUMBERS}}


def _fill(form: Form, asked: Asked) -> None:
    form.fill(_values(asked))
    _remember(form, *(key for key in asked.models if is_own(key)))


def _remember(form: Form, *configs: str) -> None:
    form["own"] = tuple(dict.fromkeys((*form["own"], *configs)))


def _title(key: str) -> str:
    return own_title(calculator.unpack(key)) if is_own(key) else models()[key].title


def ask(form: Form) -> Asked:
    """Draw the form and read it; the link in the address bar follows."""
    bar, below = run_bar(), st.container()
    with bar:
        asked = _numbers(form, _which_models(form, below))
        _offer_examples(form)
    form.address.write(calculator.to_params(asked))
    if calculator.in_link(asked) != asked.models:
        st.caption("This config is too long for the link in the address bar; the link holds the rest.")
    return asked


def _offer_examples(form: Form) -> None:
    """Offer the examples behind one button; each fills the form."""
    rows = {row.id: row for row in examples()}

    def take() -> None:
        row = rows.get(st.session_state.m_example or "")
        if row is not None:
            asked = Asked(row.models, row.tokens[-1], row.batch, row.dtype, row.weights_dtype[0], row.view)
            _fill(form, asked)

    titles = {name: row.title for name, row in rows.items()}
    how = "Each sets the form; its table shows all of its cases."
    with st.popover("Examples"):
        st.pills(how, list(rows), format_func=titles.__getitem__, on_change=take, key="m_example")


def _which_models(form: Form, below: DeltaGenerator) -> tuple[str, ...]:
    """The main model and those beside it; a config of one's own is given below the bar."""
    families = list(dict.fromkeys(row.family for row in models().values()))
    family = st.selectbox("Family", width=_FAMILY, **form.choice("family", [*families, OWN]))
    with below if family == OWN else nullcontext():
        main = _own_config(form) if family == OWN else _size(form, family)
    choices = form.choices("others", [key for key in (*models(), *form["own"]) if key != main])
    choices |= {"max_selections": MOST_MODELS - 1, "placeholder": "up to five more models"}
    others = st.multiselect("Compare with", format_func=_title, width=_OTHERS, **choices)
    return (main, *others)


def _size(form: Form, family: str) -> str:
    ids = [row.id for row in models().values() if row.family == family]
    return st.selectbox("Model", format_func=_title, width=_MODEL, **form.choice("model", ids))


def _own_config(form: Form) -> str:
    """A pasted, dropped or fetched config; the last one that could be read stays until another can."""
    given = settings()
    sources = ["Paste", "File", *(["Hugging Face"] if given.hub_models or not given.public else [])]
    with errors_said():
        config = _own(st.segmented_control("From", sources, default="Paste", key="m_how", required=True))
        key = calculator.pack(calculator.slim(config)) if config else ""
        if key and key != form["own_main"] and "gguf" in (config or {}):  # it is llama.cpp that runs such a file
            form.fill({"view": "llama.cpp", "dtype": "float16"})
        if key:
            form["own_main"] = key
            _remember(form, key)
    return form["own_main"] or next(iter(models()))


def _own(how: str) -> Config | None:
    """The config that is given in one of the ways; None before there is one."""
    if how == "Paste":
        text = st.text_area("config.json", key="m_paste", height=120, placeholder='{"model_type": …}').strip()
        return parse_config(text) if text else None
    if how == "File":
        most = settings().limits.upload_bytes
        data = {"assets": ASSETS_URL, "most": most}
        dropped = _file(key="m_file", data=data, on_file_change=lambda: None).file
        return _dropped(dropped, most) if dropped else None
    if settings().public:
        return _fetched(st.selectbox("Hugging Face id", settings().hub_models, key="m_hub"))
    name = st.text_input("Hugging Face id, or a GGUF file there", key="m_hub", placeholder=_PLACES).strip()
    return _fetched(name) if name else None


def _dropped(file: object, most: int) -> Config:
    """The config of a file that a browser sent: a config.json, or the header of a GGUF file. Raises KvvizError."""
    name, text = (file.get("name"), file.get("bytes")) if isinstance(file, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(text, str) or len(text) > 2 * most:
        raise KvvizError(f"this file can't be taken; this server takes at most {most:,} bytes")
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise KvvizError("this file did not arrive as it was sent; choose it once more") from error
    title = name[:100]
    is_gguf = data.startswith(MAGIC) or title.lower().endswith(".gguf")
    return config_in_bytes(data, title) if is_gguf else parse_config(data, title)


def _fetched(name: str) -> Config:
    """The config of a Hugging Face id or of a GGUF file there, asked for once per session."""
    kept: dict[str, Config] = st.session_state.setdefault("m_fetched", {})
    if name not in kept:
        with st.spinner(f"Asking the Hub for the config of {plain(name)}"), aside():
            found = on_the_hub(name)
            kept[name] = config_on_the_hub(*found) if found else fetch_config(name)
    return kept[name]


def _numbers(form: Form, chosen: Sequence[str]) -> Asked:
    how = "Prompt and new tokens together."
    st.number_input("Tokens in the cache", help=how, width=_TOKENS, **form.within("tokens", 1, 2**30))
    how = "Requests at once: the batch."
    st.number_input("Sequences", help=how, width=_BATCH, **form.within("batch", 1, 100_000))
    with st.popover("More", icon=":material/tune:"):
        _details(form)
    return replace(Asked(), models=tuple(chosen), **{name: form[name] for name in _NUMBERS})


def _details(form: Form) -> None:
    """Whose bytes are counted, precisions, and what few need: beams, several devices, an encoder."""
    rules = "  \n".join(f"**{row.title}**: {row.rule}" for row in VIEWS.values())
    views = form.choice("view", list(VIEWS))
    view = st.selectbox("Whose bytes", format_func=lambda name: VIEWS[name].title, help=rules, **views)
    offered = [name for name in PRECISIONS if name in VIEWS[view].dtypes]
    three, four = st.columns(2, gap="small")
    three.selectbox("Cache dtype", help=PRECISIONS[offered[0]].title, **form.choice("dtype", offered, "bfloat16"))
    how = (
        "The cache does not follow it. A quantized format's scales are left out, as formats differ; the cache's count."
    )
    four.selectbox("Weights dtype", help=how, **form.choice("weights", list(WEIGHT_BITS)))
    if view == "llama.cpp":
        _start_of_llama_cpp(form, offered)
    st.number_input("Beams", help="Beam search keeps a cache for each beam.", **form.within("beams", 1, 64))
    how = "KV heads are shared out, or repeated if there are fewer of them; the figures are one device's."
    st.number_input("Tensor-parallel devices", help=how, **form.within("tensor_parallel", 1, 64))
    how = "Length of the encoder's output in encoder-decoders; Whisper's is fixed at 1,500."
    source = {"placeholder": "as the tokens", **form.within("source_tokens", 1, 2**30)}
    st.number_input("Encoder tokens", help=how, **source)


def _start_of_llama_cpp(form: Form, types: Sequence[str]) -> None:
    """The options with which llama.cpp is started, as far as they decide its cache."""
    values = form.choice("values", ["", *types])
    st.selectbox("Type of the values (-ctv)", format_func=_type, help=_HELP["values"], **values)
    st.checkbox("Flash attention (-fa)", help=_HELP["flash_attention"], **form.value("flash_attention"))
    st.checkbox("Windows in full size (--swa-full)", help=_HELP["swa_full"], **form.value("swa_full"))
    st.checkbox("One cache for all sequences (--kv-unified)", help=_HELP["unified"], **form.value("unified"))


def _type(name: str) -> str:
    return name or "as the cache dtype"
