"""A class in real browsers: a teacher and two followers, by the link, over pages, runs and steps, and apart again."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.navigation import go, link_to
from tests.browser.test_live import asked, in_state, live, run

pytestmark = pytest.mark.browser


def words(page):
    return page.get_by_test_id("kv-room-words")


def follows(page, number):
    expect(words(page)).to_have_text(re.compile(rf"^Following room \w{{3}}-\w{{3}} · {number} here$"))


def act(page, name):
    page.get_by_test_id("kv-room-bar").get_by_role("button", name=name, exact=True).click()


def slider(page):
    return page.get_by_test_id("kv-step")


def opened_room(teacher):
    """Open a room on this page; the path of its link."""
    teacher.get_by_test_id("kv-room-button").click()
    teacher.get_by_role("button", name="Open a room").click()
    link = teacher.get_by_test_id("kv-room-link").input_value()
    assert re.search(r"/\?room=[A-Z2-9]{6}$", link)
    assert teacher.get_by_test_id("kv-room-qr").get_attribute("src").startswith("data:image/svg+xml")
    teacher.keyboard.press("Escape")
    return link[link.index("/?room=") :]


def test_a_class_follows_its_teacher(open_page):
    teacher = open_page(asked(new_tokens=16))
    path = opened_room(teacher)

    # two join: one by the link, from the front page; one by typing the code, on another page
    one, two = open_page(path), open_page("/quiz")
    two.get_by_test_id("kv-room-button").click()
    two.get_by_test_id("kv-room-field").fill(path[-6:].lower())
    two.keyboard.press("Enter")
    expect(words(teacher)).to_have_text(re.compile(r"^You lead room .* · 2 follow$"))
    follows(one, 2), follows(two, 2)
    expect(live(two)).to_be_visible()
    assert "room=" not in one.url

    # the run and the step
    run(teacher)
    comparison = live(teacher).get_attribute("data-comparison")
    for page in (teacher, one, two):
        expect(live(page)).to_have_attribute("data-comparison", comparison)
        in_state(page, "done")
        expect(page).to_have_url(re.compile(f"comparison={comparison}"))
    slider(teacher).fill("5")
    for page in (one, two):
        expect(live(page)).to_have_attribute("data-step", "5")
        expect(page.get_by_test_id("kv-layers-note")).to_contain_text("After step 5")
        assert slider(page).input_value() == "5"
    teacher.get_by_role("tab", name="No cache").click()
    for page in (one, two):
        expect(page.get_by_test_id("kv-layers-note")).to_contain_text("After step 5: no cache object")

    # a hand on the slider is one's own way, and the way back leads to the teacher's step
    slider(one).fill("9")
    expect(words(one)).to_contain_text("You go your own way")
    expect(words(teacher)).to_contain_text("1 follows")
    slider(teacher).fill("7")
    expect(live(two)).to_have_attribute("data-step", "7")
    expect(live(one)).to_have_attribute("data-step", "9")
    act(one, "Follow again")
    expect(live(one)).to_have_attribute("data-step", "7")

    # the walk through a layer: who follows sees its scenes, whether they come before or after the page
    go(teacher, "Anatomy")
    scenes = [page.get_by_test_id("kv-scene") for page in (teacher, one, two)]
    expect(scenes[0]).to_contain_text("One new token", timeout=60_000)
    teacher.locator(".kv-steps button").nth(0).click()
    expect(scenes[0]).to_contain_text("Prefill: the prompt enters")
    for _ in range(3):
        teacher.get_by_test_id("kv-next").click()
    for scene in scenes:
        expect(scene).to_contain_text("Every query meets its own key and all earlier ones")
    follows(one, 2), follows(two, 2)
    one.get_by_test_id("kv-back").click()
    expect(words(one)).to_contain_text("You go your own way")
    act(one, "Follow again")
    expect(scenes[1]).to_contain_text("Every query meets its own key and all earlier ones")
    follows(one, 2)

    # another page, and what is asked on it
    go(teacher, "Memory")
    for page in (one, two):
        expect(page.get_by_role("heading", name="How much memory the KV cache takes")).to_be_visible()
    field = teacher.get_by_role("spinbutton", name="Tokens in the cache")
    field.fill("777")
    field.press("Enter")
    for page in (one, two):
        expect(page.get_by_role("spinbutton", name="Tokens in the cache")).to_have_value("777")
    follows(one, 2)

    # a page of one's own choosing, too, is one's own way, however long a busy server takes from the click to the page
    two.get_by_role("heading", name="How much memory the KV cache takes").click()
    two.wait_for_timeout(700)
    link_to(two, "Sweep").dispatch_event("click")
    expect(words(two)).to_contain_text("You go your own way")

    # the teacher's page is loaded anew: it leads on; then the room is closed
    teacher.reload()
    expect(words(teacher)).to_contain_text("You lead room")
    expect(words(teacher)).to_contain_text("1 follows")
    follows(one, 1)
    act(teacher, "Show code")
    teacher.get_by_role("button", name="Close room").click()
    expect(words(one)).to_have_text(re.compile(r"^Room \w{3}-\w{3} was closed\.$"))
    act(two, "Follow again")
    expect(words(two)).to_contain_text("There is no room with this code")
    assert two.url.endswith("/sweep")
