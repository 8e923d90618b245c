"""Tests the row of tabs."""

from streamlit.testing.v1 import AppTest


def _page():
    import streamlit as st

    from kvviz.ui.shared.tabs import draw_tabs

    names = ["one", "two", "three"][: st.session_state.get("count", 3)]
    draw_tabs({name: lambda name=name: st.markdown(f"inside {name}") for name in names}, "part", "two")


def shown(app: AppTest) -> list[str]:
    assert not app.exception
    return [text.value for text in app.markdown]


def test_the_open_tab_alone_is_drawn_and_stays_open():
    app = AppTest.from_function(_page).run()
    assert shown(app) == ["inside two"]
    app.segmented_control(key="part").set_value("three").run()
    assert shown(app.run()) == ["inside three"]


def test_a_tab_that_is_gone_gives_way_to_the_default_else_to_the_first():
    app = AppTest.from_function(_page).run()
    app.segmented_control(key="part").set_value("three").run()
    app.session_state.count = 2
    assert shown(app.run()) == ["inside two"]
    app.session_state.count = 1
    assert shown(app.run()) == ["inside one"]
