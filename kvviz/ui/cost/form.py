"""The cost page's form: lengths, widths, and whose full count is taken."""

import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.cost.shorthand import LIMITS, OPENING, PRESETS, Case, from_params, shape_of, to_params
from kvviz.memory.calculator import is_own, own_title, pack, slim, unpack
from kvviz.memory.formula import DTYPE_BYTES
from kvviz.models.catalog.rows import models
from kvviz.models.sources import parse_config
from kvviz.ui.shared.experiment import run_bar
from kvviz.ui.shared.form import Field, Form
from kvviz.ui.shared.plain import plain

_PLAIN, _OWN = "", "own"
_FIELD = 135  # pixels: all fields stand in one row of a page 1280 wide, two in a row on a phone
_SIZES = ("prompt", "new", "width", "layers", "dtype")


def ask() -> Case:
    """Draw the form and read it; the link in the address bar follows."""
    form = _taken_over()

    def take_preset() -> None:
        if preset := st.session_state.c_preset:
            form.fill(_values(PRESETS[preset]))

    with run_bar("cost"):  # two in a row on a phone
        model = _fields(form)
        with st.popover("Examples"):
            st.pills("Each sets the form.", list(PRESETS), key="c_preset", on_change=take_preset)
    if model == _OWN:
        model = _own_config(form)
    case = Case(model=model, **{name: form[name] for name in _SIZES})
    form.address.write(to_params(case))
    return case


def _taken_over() -> Form:
    """The page's fields, as the link that arrived or an earlier visit has filled them.

    `own` is the user's config, packed; the model `_OWN` stands for it.
    """
    first = _values(OPENING)
    form = Form("cost", "c_", own=Field(""), **{name: Field(first[name]) for name in first})
    if case := form.read_whole(from_params):
        form.fill(_values(case))
    return form


def _values(case: Case) -> dict[str, object]:
    """What the fields hold for a case."""
    model = {"model": _OWN, "own": case.model} if is_own(case.model) else {"model": case.model}
    return {**model, **{name: getattr(case, name) for name in _SIZES}}


def _fields(form: Form) -> str:
    """Draw the fields; returns the model that is chosen."""
    titles = {_PLAIN: "plain layers of width d", **{row.id: row.title for row in models().values()}}
    titles[_OWN] = "Your own config"
    how = "A model's shape comes from its published config: no weights are needed. The shorthand takes its width d."
    choice = {"on_change": lambda: _adopt_shape(form), **form.choice("model", list(titles))}
    model = st.selectbox("Model", format_func=titles.__getitem__, help=how, width=210, **choice)
    st.number_input("Prompt P, tokens", width=_FIELD, **form.within("prompt", 1, LIMITS["prompt"]))
    st.number_input("New tokens N", width=_FIELD, **form.within("new", 1, LIMITS["new"]))
    if not model:  # a model brings its own
        st.number_input("Hidden size d", width=_FIELD, **form.within("width", 1, LIMITS["width"]))
        st.number_input("Layers", width=_FIELD, **form.within("layers", 1, LIMITS["layers"]))
    st.selectbox("Cache's precision", width=_FIELD, **form.choice("dtype", list(DTYPE_BYTES)))
    return str(model)


def _adopt_shape(form: Form) -> None:
    """A model brings its own d and its own layers."""
    key = form["own"] if form["model"] == _OWN else form["model"]
    if not key:
        return
    try:
        shape = shape_of(key)
    except KvvizError:
        return  # the count itself will say why
    form.fill({"width": shape.hidden, "layers": len(shape.layers)})


def _own_config(form: Form) -> str:
    """A pasted config; the last one that could be read stays until another can."""

    def paste() -> None:
        st.session_state.c_problem = ""
        try:
            form["own"] = pack(slim(parse_config(st.session_state.c_paste)))
            _adopt_shape(form)
        except KvvizError as error:
            st.session_state.c_problem = str(error)

    st.text_area("config.json", key="c_paste", height=120, placeholder='{"model_type": …}', on_change=paste)
    if st.session_state.get("c_problem"):
        st.warning(plain(st.session_state.c_problem))
    own = form["own"]
    counted = f"Counting {plain(own_title(unpack(own)))}." if own else ""
    st.caption(counted or "Paste a config; until then plain layers are counted.")
    return own
