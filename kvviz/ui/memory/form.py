"""The memory page's form: what is given, models, sizes, precisions and whose bytes."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.precision import PRECISIONS, WEIGHT_BITS
from kvviz.base.settings import settings
from kvviz.memory import calculator
from kvviz.memory.calculator import MOST_MODELS, Asked, is_own, own_title
from kvviz.memory.engine_views import VIEWS
from kvviz.memory.given import Given, read_given
from kvviz.models.catalog.rows import examples, models
from kvviz.models.gguf.fetch import config_in_bytes
from kvviz.models.gguf.header import MAGIC
from kvviz.server.script_slots import aside
from kvviz.ui.folders import ASSETS_URL
from kvviz.ui.frame.page import TEXTS
from kvviz.ui.shared.component import component
from kvviz.ui.shared.experiment import run_bar
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.plain import plain

OWN = "Yours"
_HELP = TEXTS["memory"]["llama_cpp"]
_FAMILY, _MODEL = 150, 220  # pixels: all fields stand in one row of a page 1280 wide
_WIDTH = 146
_LLAMA_CPP = ("values", "flash_attention", "swa_full", "unified", "ubatch")
_NUMBERS = (
    *("tokens", "batch", "dtype", "weights", "view", "beams", "tensor_parallel", "source_tokens", "gpu"), *_LLAMA_CPP
)  # fmt: skip
_TAKEN, _REFUSED = "m_taken", "m_refused"  # of this session: what the last given thing was taken for, or why it wasn't

_box = component("kvviz_given", "memory/box.js", "kv-given")


def memory_form() -> Form:
    """The page's fields, as the link that arrived or an earlier visit has filled them.

    `own` are the configs that this session was given, packed; `lines` those of an engine's log.
    """
    first = _values(Asked())
    form = Form("memory", "m_", own=Field(()), lines=Field(""), **{name: Field(first[name]) for name in first})
    if asked := form.read_whole(calculator.from_params):
        _fill(form, asked)
    return form


def _values(asked: Asked) -> dict[str, object]:
    """What the fields hold for what is asked."""
    main, *others = asked.models
    family = OWN if is_own(main) else models()[main].family
    return {"family": family, "model": main, "others": others, **{name: getattr(asked, name) for name in _NUMBERS}}


def _fill(form: Form, asked: Asked) -> None:
    form.fill(_values(asked))
    _remember(form, *(key for key in asked.models if is_own(key)))


def _remember(form: Form, *configs: str) -> None:
    form["own"] = tuple(dict.fromkeys((*form["own"], *configs)))


def _title(key: str) -> str:
    return own_title(calculator.unpack(key)) if is_own(key) else models()[key].title


def ask(form: Form) -> Asked:
    """Draw the form and read it; the link in the address bar follows."""
    with run_bar("memory"):
        fields = st.container(horizontal=True, vertical_alignment="bottom", gap="small", width="content")
        _ask_for_anything(form)  # before the fields, which its answer fills
    told = st.container()
    if taken := st.session_state.get(_TAKEN):
        told.caption(plain(taken))
    if refused := st.session_state.get(_REFUSED):
        told.warning(plain(refused))
    with fields:
        asked = _numbers(form, _which_models(form))
        _offer_examples(form)
    form.address.write(calculator.to_params(asked))
    if calculator.in_link(asked) != asked.models:
        told.caption("This config is too long for the link in the address bar; the link holds the rest.")
    return asked


def _ask_for_anything(form: Form) -> None:
    """Draw the box that takes whatever says which model is meant, and keep what it was taken for."""
    most, words = settings().limits.upload_bytes, TEXTS["memory"]["given"]
    data = {
        "assets": ASSETS_URL,
        "most": most,
        "label": words["label"],
        "short": words["short"],
        "choose": words["choose"],
    }
    given = _box(key="m_given", data=data, on_given_change=lambda: None).given
    if given:
        st.session_state[_TAKEN] = st.session_state[_REFUSED] = ""
        try:
            with st.spinner("Reading what you gave"), aside():
                found = _read(given, most)
            _take(form, found)
            st.session_state[_TAKEN] = f"Taken as {', '.join(each.what for each in found)}."
        except KvvizError as error:
            st.session_state[_REFUSED] = str(error)


def _read(given: object, most: int) -> tuple[Given, ...]:
    """What a browser sent: a text, or a file by its name and bytes. Raises KvvizError."""
    parts = given if isinstance(given, dict) else {}
    text, name, data = (parts.get(part) for part in ("text", "name", "bytes"))
    if isinstance(text, str) and len(text) <= most:
        return read_given(text, paths=not settings().public)
    if not isinstance(name, str) or not isinstance(data, str) or len(data) > 2 * most:
        raise KvvizError(f"this can't be taken; this server takes at most {most:,} bytes")
    try:
        whole = base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise KvvizError("this file did not arrive as it was sent; choose it once more") from error
    title = name[:100]
    if whole.startswith(MAGIC) or title.lower().endswith(".gguf"):
        return (Given(f"the GGUF file {title}", config=config_in_bytes(whole, title)),)
    if len(whole) > most:
        raise KvvizError(f"{title} has more than the {most:,} bytes that this server takes")
    return read_given(whole.decode("utf-8", "replace"), paths=False)


def _take(form: Form, found: Sequence[Given]) -> None:
    """Fill the form with what was given: the first model becomes the main one, further ones stand beside it."""
    form["lines"] = found[0].log
    keys = tuple(each.model or calculator.pack(calculator.slim(each.config or {})) for each in found if not each.log)
    if not keys:
        return
    _remember(form, *(key for key in keys if is_own(key)))
    main, *others = keys
    form.fill({"family": OWN if is_own(main) else models()[main].family, "model": main})
    if others:
        form["others"] = others
    if "gguf" in (found[0].config or {}):  # it is llama.cpp that runs such a file
        form.fill({"view": "llama.cpp", "dtype": "float16"})


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


def _which_models(form: Form) -> tuple[str, ...]:
    """The main model and those beside it, of the catalog or given."""
    families = list(dict.fromkeys(row.family for row in models().values()))
    given = [OWN] if form["own"] else []
    family = st.selectbox("Family", width=_FAMILY, **form.choice("family", [*given, *families], families[0]))
    ids = form["own"] if family == OWN else [row.id for row in models().values() if row.family == family]
    main = st.selectbox("Model", format_func=_title, width=_MODEL, **form.choice("model", ids))
    return (main, *(key for key in form["others"] if key != main and key in _offered(form)))


def _offered(form: Form) -> tuple[str, ...]:
    return (*models(), *form["own"])


def compare_with(form: Form, main: str) -> None:
    """Draw the choice of the models that stand beside the main one."""
    choices = form.choices("others", [key for key in _offered(form) if key != main])
    choices |= {"max_selections": MOST_MODELS - 1, "placeholder": "up to five more models"}
    st.multiselect("Compare with", format_func=_title, width=560, **choices)  # on a phone: a line of its own


def _numbers(form: Form, chosen: Sequence[str]) -> Asked:
    how = "Prompt and new tokens together."
    st.number_input("Tokens in the cache", help=how, width=_WIDTH, **form.within("tokens", 1, 2**30))
    how = "Requests at once: the batch."
    st.number_input("Sequences", help=how, width=_WIDTH, **form.within("batch", 1, 100_000))
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
    scaled = [PRECISIONS[name].title for name in offered if PRECISIONS[name].title != name]
    how = "  \n".join(["Bytes of each number in the cache; scales are counted.", *scaled])
    three.selectbox("Cache dtype", help=how, **form.choice("dtype", offered, "bfloat16"))
    how = (
        "The cache keeps its own dtype. The scales of quantized weights are not counted, because formats differ: "
        "int4 weights take 4 bits each, and values of an int4 cache take 4.5 with their scales."
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
    st.number_input("Tokens at once (-ub)", help=_HELP["ubatch"], **form.within("ubatch", 1, 65_536))


def _type(name: str) -> str:
    return name or "as the cache dtype"
