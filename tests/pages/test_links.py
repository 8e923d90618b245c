"""A page's address: what a browser still carries when the page has already written another is no link."""

import pytest

from kvviz.ui.folders import PAGES


def go(app, page):
    """To a page by the navigation, which leaves the address bare."""
    return app.switch_page(str(PAGES / f"{page}.py")).run()


def address(app):
    return {name: value if isinstance(value, str) else value[0] for name, value in app.query_params.items()}


def asked_with(app, params):
    """The browser asks for a rerun with this address."""
    app.query_params.clear()
    app.query_params.update(params)
    return app.run()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "button", "field", "name"), [("live", "run", "comparison", ""), ("sweep", "s_run", "sweep", "earlier")]
)
def test_a_run_pressed_while_the_browser_asks_with_the_old_address_is_watched(open_page, page, button, field, name):
    before = {field: name} if name else {}
    app = open_page(page, **before)
    app.button(key=button).click().run()
    started = address(app)
    assert list(started) == [field] and started[field] != "earlier"
    for _ in range(3):  # the last run's end, say: asked for before the new address was there
        asked_with(app, before)
        assert not app.exception and address(app) == started


@pytest.mark.slow
def test_the_browsers_back_button_goes_back(open_page):
    app = open_page("live", comparison="earlier")
    app.button(key="run").click().run()
    started = address(app)
    for _ in range(2):
        asked_with(app, started)
    assert address(asked_with(app, {"comparison": "earlier"})) == {"comparison": "earlier"}


@pytest.mark.slow
def test_two_quick_changes_of_a_form_both_stand(open_page):
    app, field, other = open_page("cost"), "c_prompt", "c_new"
    before = address(app)
    app.number_input(key=field).set_value(1024).run()
    app.query_params.clear()
    app.query_params.update(before)  # sent before the first change's address came
    app.number_input(key=other).set_value(3).run()
    assert not app.exception
    assert (app.number_input(key=field).value, app.number_input(key=other).value) == (1024, 3)
    assert address(app).items() >= {field[2:]: "1024", other[2:]: "3"}.items()


def test_two_quick_changes_of_the_ladder_both_stand(open_page):
    app = open_page("roofline", tokens="512", batch="4")
    before = address(app)
    app.selectbox(key="r_tokens").set_value(256).run()
    app.query_params.clear()
    app.query_params.update(before)
    app.selectbox(key="r_batch").set_value(2).run()
    assert not app.exception
    assert (app.selectbox(key="r_tokens").value, app.selectbox(key="r_batch").value) == (256, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "link", "widget", "value"),
    [
        ("cost", {"prompt": "300"}, "c_prompt", 300),
        ("serving", {"requests": "60"}, "v_requests", 60),
        ("live", {"batch": "3"}, "batch", 3),
    ],
)
def test_a_form_is_as_it_was_after_a_look_at_other_pages(open_page, page, link, widget, value):
    app = open_page(page, **link)
    for other in ("compare", "live"):
        app.query_params.clear()
        go(app, other)
        assert not app.exception
    app.query_params.clear()
    go(app, page)
    assert not app.exception
    assert app.session_state[widget] == value


@pytest.mark.slow
def test_what_no_address_holds_is_kept_too(open_page):
    app = open_page("sweep")
    app.selectbox(key="s_preset").set_value("A grid of your own").run()
    app.text_input(key="s_prompts").set_value("64, 96").run()
    go(app, "memory")
    go(app, "sweep")
    assert not app.exception
    assert app.text_input(key="s_prompts").value == "64, 96"


@pytest.mark.slow
def test_a_widget_has_what_its_field_holds_as_its_default_too(open_page):
    """A browser that asks for a run before it has mounted the widget hears of the value by its default alone."""
    app = open_page("anatomy", model="tiny-llama", prompt="A fox", new="7").run()
    model = app.selectbox(key="a_model")
    assert model.options[model.proto.default] == "Tiny LLaMA" or model.value == "tiny-llama"
    assert app.text_input(key="a_prompt").proto.default == "A fox"
    assert app.number_input(key="a_new").proto.default == 7
