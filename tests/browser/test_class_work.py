"""A class draws and answers in its room: the teacher sees it without names, reveals it, and takes it home."""

import csv
from pathlib import Path

import pytest
from playwright.sync_api import expect

from kvviz.experiments.questions import QUESTIONS
from tests.browser.navigation import go
from tests.browser.test_guess import stroke
from tests.browser.test_live import live, settled
from tests.browser.test_rooms import follows, opened_room

pytestmark = pytest.mark.browser


def test_a_class_answers_and_draws_and_sees_all_of_it_when_it_is_revealed(open_page):
    teacher = open_page("/quiz?question=square")
    path = opened_room(teacher)
    pupils = [open_page(path) for _ in range(2)]
    expect(teacher.get_by_test_id("kv-class-count")).to_have_text("0 of the class have answered")
    for pupil, said in zip(pupils, ("100", "200"), strict=True):
        follows(pupil, 2)
        field = pupil.get_by_role("textbox", name="Number of pairs")
        field.fill(said)
        field.press("Enter")
        expect(pupil.get_by_text(f"You said: {said} pairs. Your answer is kept.")).to_be_visible()
        assert pupil.get_by_text(QUESTIONS["square"].check.because).count() == 0, "no answers before the lesson"
    expect(teacher.get_by_test_id("kv-class-count")).to_have_text("2 of the class have answered")
    assert teacher.get_by_test_id("kv-class-rows").count() == 0, "the wall shows nothing before the teacher wants it"
    teacher.get_by_test_id("kv-class-look").click()
    expect(teacher.get_by_test_id("kv-class-rows")).to_contain_text("100 pairs ✓")
    assert pupils[0].get_by_test_id("kv-class-rows").count() == 0
    teacher.get_by_test_id("kv-class-reveal").click()
    for pupil in pupils:
        expect(pupil.get_by_test_id("kv-class-rows").locator("tr")).to_have_count(2)

    for pupil, judged in zip(pupils, ("Right.", "Not quite."), strict=True):
        pupil.get_by_role("button", name="Show the answers").click()
        expect(pupil.get_by_text(judged)).to_be_visible()

    with teacher.expect_download() as event:
        teacher.get_by_test_id("kv-class-csv").click()
    rows = list(csv.DictReader(Path(event.value.path()).read_text(encoding="utf-8").splitlines()))
    assert sorted((row["question"], row["before"], row["before_right"]) for row in rows) == [
        ("square", "100 pairs", "true"),
        ("square", "200 pairs", "false"),
    ]

    # the drawn question: its answer is the shape of each line
    teacher.locator(".st-key-q_question").get_by_text("1 · Two curves", exact=True).click()
    pupil = pupils[0]
    expect(pupil.get_by_test_id("kv-sketch-words")).to_contain_text("No cache")
    stroke(pupil, [(0.0, 0.2), (1.0, 0.9)], "kv-sketch-area")
    expect(pupil.get_by_test_id("kv-sketch-words")).to_contain_text("KV cache")
    pupil.get_by_role("button", name="stays flat").click()
    expect(pupil.get_by_test_id("kv-sketch-words")).to_contain_text("Press Check")
    pupil.get_by_role("button", name="Check", exact=True).click()
    expect(pupil.get_by_text("Right. You said: No cache climbs, KV cache stays flat.")).to_be_visible()
    expect(teacher.get_by_test_id("kv-class-count")).to_have_text("1 of the class has answered")
    follows(pupil, 2)

    # the live page: drawings lie over one another
    go(teacher, "Live")
    for pupil in pupils:
        expect(live(pupil)).to_be_visible()
        follows(pupil, 2)
        pupil.get_by_test_id("kv-guess-draw").click()
        for line in ([(0.0, 0.2), (1.0, 0.8)], [(0.0, 0.1), (1.0, 0.1)]):
            stroke(pupil, line)
        expect(pupil.get_by_test_id("kv-guess-words")).to_contain_text("Now press Run")
    expect(teacher.get_by_test_id("kv-class-drawings")).to_have_text("2 drawings of the class")
    live(teacher).get_by_test_id("kv-class-look").click()
    expect(teacher.get_by_test_id("kv-class-area").locator("polyline")).to_have_count(4)
    expect(pupils[0].get_by_test_id("kv-class-area")).to_be_hidden()
    live(teacher).get_by_test_id("kv-class-reveal").click()
    for pupil in pupils:
        expect(pupil.get_by_test_id("kv-class-area").locator("polyline")).to_have_count(4)
    live(teacher).get_by_test_id("kv-class-reveal").click()
    for pupil in pupils:
        expect(pupil.get_by_test_id("kv-class-area")).to_be_hidden()
        follows(pupil, 2)

    # the live page again: everyone is asked to run; who wants to does
    teacher.get_by_test_id("kv-everyone-run").click()
    joins, declines = pupils
    declines.get_by_test_id("kv-everyone-not").click()
    expect(declines.get_by_test_id("kv-everyone-words")).to_have_text("Your browser takes no part.")
    joins.get_by_test_id("kv-everyone-join").click()
    dotted = "Your browser is one of 1: dotted, and named “you”."
    expect(joins.get_by_test_id("kv-everyone-words")).to_have_text(dotted, timeout=120_000)  # it decodes a whole run
    expect(teacher.get_by_test_id("kv-everyone-words")).to_contain_text("1 browser has sent two curves")
    expect(declines.get_by_test_id("kv-everyone-curves").locator(".legendtext")).to_have_count(2)
    expect(joins.get_by_test_id("kv-everyone-curves").locator(".legendtext")).to_have_count(4)
    with teacher.expect_download() as event:
        teacher.get_by_test_id("kv-everyone-csv").click()
    assert len(Path(event.value.path()).read_text(encoding="utf-8").splitlines()) == 1 + 192
    teacher.get_by_test_id("kv-everyone-end").click()
    expect(joins.get_by_test_id("kv-everyone")).to_be_hidden()


def test_the_handout_prints_without_the_frame(open_page):
    page = open_page("/lesson?view=Handout")
    expect(page.get_by_role("heading", name="The KV cache: see it work")).to_be_visible()
    settled(page)
    page.emulate_media(media="print")
    expect(page.locator(".kv-nav")).to_be_hidden()
    expect(page.get_by_test_id("kv-room-button")).to_be_hidden()
    expect(page.get_by_role("heading", name="For the teacher")).to_be_hidden()
    expect(page.get_by_text("The trade-off")).to_be_visible()
    pages = page.pdf(format="A4").count(b"/Type /Page\n")
    assert 1 <= pages <= 3
