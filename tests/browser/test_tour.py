"""The first page shows the curves by itself, and the tour leads over the real pages, one stop after the other."""

import re

import pytest
from playwright.sync_api import expect

from kvviz.ui.frame.navigation import GROUPS
from kvviz.ui.frame.page import TEXTS
from tests.browser.navigation import go, link_to
from tests.browser.test_live import live
from tests.browser.test_rooms import follows, opened_room

pytestmark = pytest.mark.browser


def bar(page):
    return page.locator(".st-key-tour_bar")


def way(page, name):
    bar(page).get_by_role("link", name=name).click()


def stands_at(page, number, where):
    expect(bar(page)).to_contain_text(f"{number} of 6")
    expect(page).to_have_url(re.compile(rf"/{where}\?(.*&)?tour={number}(&|$)"))


def test_the_first_page_shows_the_curves_while_nothing_is_pressed_and_nothing_of_a_run(open_page, measured):
    measured("tiny-gpt2")  # something has run: the first page shows the recording all the same
    page = open_page("/")
    expect(page.get_by_role("heading", name="What a KV cache does")).to_be_visible()
    page.wait_for_function(
        "() => document.querySelector('[data-testid=kv-chart]')?.data?.some((line) => line.x.length === 192)"
    )
    expect(page.get_by_test_id("kv-status")).to_contain_text("recording of mini-gpt2")
    assert live(page).get_attribute("data-comparison") == ""
    for width, height in ((1440, 900), (1280, 720), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(300)
        box = page.get_by_test_id("kv-chart").bounding_box()
        assert box["y"] < 0.5 * height, (width, height)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_tour_from_stop_to_stop_and_back_to_it(open_page):
    page = open_page("/")
    page.get_by_role("link", name="Begin the tour").click()
    stands_at(page, 1, "anatomy")
    box = page.get_by_test_id("stExpander").first
    for _ in range(6):
        box.get_by_role("button", name="Next").click()
    expect(box).to_contain_text("attention(Q(D), cached=3 tokens)")
    stands_at(page, 1, "anatomy")
    way(page, "Next")
    stands_at(page, 2, "live")
    for number, where in ((3, "live"), (4, "anatomy"), (5, "memory"), (6, "serving")):
        way(page, "Next")
        stands_at(page, number, where)
    expect(bar(page).get_by_role("link", name="Check yourself")).to_be_visible()
    for number, where in ((5, "memory"), (4, "anatomy"), (3, "live"), (2, "live")):
        page.go_back()
        stands_at(page, number, where)
    page.go_forward()
    stands_at(page, 3, "live")
    for number, where in ((4, "anatomy"), (5, "memory")):
        way(page, "Next")
        stands_at(page, number, where)
    assert "models=llama-3.1-8b" in page.url
    way(page, "Leave")
    expect(page.get_by_role("link", name="Go on with stop 5")).to_be_visible()
    expect(bar(page)).to_have_count(0)
    go(page, "Sweep")
    expect(page.get_by_role("heading", name="Sweep: one thing varies")).to_be_visible()
    expect(bar(page)).to_have_count(0)
    go(page, "Start here")
    page.get_by_role("link", name="Go on with stop 5").click()
    stands_at(page, 5, "memory")


def test_a_class_follows_the_tour(open_page):
    teacher = open_page("/")
    pupil = open_page(opened_room(teacher))
    follows(pupil, 1)
    teacher.get_by_role("link", name="Begin the tour").click()
    for page in (teacher, pupil):
        stands_at(page, 1, "anatomy")
    for number in (2, 3):
        way(teacher, "Next")
        for page in (teacher, pupil):
            stands_at(page, number, "live")
    way(teacher, "Leave")
    expect(pupil.get_by_role("link", name="Go on with stop 3")).to_be_visible()
    follows(pupil, 1)


def test_the_navigation_has_every_page_on_every_screen(open_page):
    page = open_page("/quiz")
    links = page.locator(".kv-nav").get_by_role("link")
    expect(links).to_have_count(sum(map(len, GROUPS.values())))
    menu = page.get_by_test_id("kv-menu")
    for width in (1440, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(300)
        boxes = links.evaluate_all("(all) => all.map((link) => link.getBoundingClientRect().toJSON())")
        assert len({round(box["y"]) for box in boxes}) == 1, "one row"
        assert [box["x"] for box in boxes] == sorted(box["x"] for box in boxes)
        button = page.get_by_test_id("kv-room-button").bounding_box()
        assert boxes[-1]["x"] + boxes[-1]["width"] <= button["x"], "all of it beside the room's button"
        expect(menu).to_be_hidden()
    page.set_viewport_size({"width": 390, "height": 800})
    expect(links.first).to_be_hidden()
    expect(menu).to_have_accessible_name("Menu, at Quiz")
    menu.click()
    boxes = links.evaluate_all("(all) => all.map((link) => link.getBoundingClientRect().toJSON())")
    assert all(box["x"] >= 0 and box["right"] <= 390 and box["bottom"] <= 800 and box["width"] for box in boxes)
    go(page, "Glossary")
    expect(links.first).to_be_hidden()
    expect(page.get_by_role("heading", name="Glossary")).to_be_visible()


def test_the_navigation_leads_on_and_back_without_loading_the_document_again(open_page):
    page = open_page("/quiz")
    page.evaluate("window.sameDocument = true")
    for leave, name in ((lambda: go(page, "Glossary"), "glossary"), (page.go_back, "quiz")):
        leave()
        expect(page.get_by_role("heading", name=TEXTS[name]["title"], exact=True)).to_be_visible()
        expect(link_to(page, TEXTS[name]["navigation"])).to_have_attribute("aria-current", "page")
        expect(page.locator(".kv-nav [aria-current]")).to_have_count(1)
    assert page.evaluate("window.sameDocument")
