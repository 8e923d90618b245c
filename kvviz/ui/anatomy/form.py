"""The anatomy page's form: model, prompt, layer and head."""

import streamlit as st

from kvviz.decoding.scratch.design import design_of
from kvviz.experiments.inside.spec import AnatomySpec
from kvviz.models.catalog.rows import models
from kvviz.models.text import STORY
from kvviz.ui.shared.form import Field, Form, whole
from kvviz.ui.shared.model_choice import choose_model, model_field, small_models
from kvviz.ui.shared.plain import errors_said

MOST_NEW = 12  # new tokens; nobody watches a walk of more scenes


def anatomy_form() -> Form:
    """The page's fields, as the link that arrived or an earlier visit has filled them."""
    form = Form(
        "anatomy",
        "a_",
        model=model_field(small_models("scratch")),
        prompt=Field(STORY, str),
        layer=Field(0, whole),
        head=Field(0, whole),
        new=Field(5, whole),
    )
    form.take_over(form.address.arrived())
    return form


def ask(form: Form) -> AnatomySpec | None:
    """Draw the form; None, and the reason on the page, if what it says can't be inspected."""
    one, two, three, four, five = st.columns([4, 6, 2, 2, 2], gap="small")
    model = choose_model(one, form, small_models("scratch"))
    design = design_of(models()[model].config)
    prompt = two.text_input("Prompt", max_chars=200, **form.value("prompt"))
    layer = three.number_input("Layer", **form.within("layer", 0, design.layers - 1))
    head = four.number_input("Query head", **form.within("head", 0, design.heads - 1))
    new = five.number_input("New tokens", **form.within("new", 2, MOST_NEW))
    form.write()
    group = design.heads // design.kv_heads
    with errors_said():  # the first head of the group that shares a KV head: all of the group are one inspection
        return AnatomySpec(model, prompt, new_tokens=new, layer=layer, head=head // group * group)
    return None
