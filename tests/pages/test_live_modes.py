"""The live form's modes: those of a lesson as pills, the other ways to keep a cache in a quieter place, and links."""

from functools import partial

import pytest

from kvviz.decoding.modes import MODES


@pytest.fixture
def visit(open_page):
    """`visit(modes="cached,paged")` is the live page with that in its address."""
    return partial(open_page, "live")


def pills(app):
    return next(group for group in app.get("button_group") if group.key == "modes")


def run(app):
    app.button(key="run").click().run()
    assert not app.exception
    return app.scheduler.shown().spec.modes


def test_every_mode_is_in_one_of_the_two_places(visit):
    app = visit()
    first = list(pills(app).options)
    assert first == [
        MODES[name].title for name in ("uncached", "cached", "unpassed", "scratch", "compiled", "lookup", "speculative")
    ]
    assert {*first, *app.multiselect(key="more_modes").options} == {
        mode.title for mode in MODES.values() if not mode.elsewhere
    }
    assert not set(first) & set(app.multiselect(key="more_modes").options)
    assert run(app) == ("uncached", "cached")


def test_both_places_reach_the_work_in_the_order_of_the_modes(visit):
    app = visit()
    app.multiselect(key="more_modes").set_value(["int8", "static", "paged"]).run()
    pills(app).set_value(["compiled", "cached"]).run()
    assert run(app) == ("cached", "compiled", "static", "paged", "int8")


def test_a_design_alone_is_enough(visit):
    app = visit()
    app.multiselect(key="more_modes").set_value(["paged"])
    pills(app).set_value([]).run()
    assert not app.warning and run(app) == ("paged",)


def test_a_link_names_the_modes_and_the_form_stays_free_afterwards(visit):
    app = visit(modes="paged,cached,nonsense")
    assert pills(app).value == ["cached"] and app.multiselect(key="more_modes").value == ["paged"]
    pills(app).set_value(["cached", "uncached"]).run()
    assert run(app) == ("uncached", "cached", "paged")


def test_a_link_without_a_mode_that_there_is_leaves_the_usual_ones(visit):
    app = visit(modes="x,y")
    assert (pills(app).value, app.multiselect(key="more_modes").value) == (["uncached", "cached"], [])


def test_another_link_in_the_same_tab_is_taken_over(visit):
    """As when a room's leader goes there."""
    app = visit(modes="cached,paged")
    app.query_params["modes"] = "cached,int4"
    app.run()
    assert app.multiselect(key="more_modes").value == ["int4"]
