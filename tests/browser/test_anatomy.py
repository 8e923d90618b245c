"""What is walked through in a real browser: a layer, by keys and pointer; a mistake; a serving run, step by step."""

import re

import pytest
from playwright.sync_api import expect

from kvviz.experiments.batching.timeline import figures_of, together

pytestmark = pytest.mark.browser


def number(page, row):
    """A count of multiply-adds: 0 with the cache, 1 without."""
    return int(page.get_by_test_id("kv-counts").locator("b").nth(row).inner_text().replace(",", ""))


def rows(page, name):
    """Rows and columns that a matrix shows in this scene."""
    text = page.locator(f'.kv-matrix[data-name="{name}"] .kv-shape').inner_text()
    return [int(part) for part in re.findall(r"\d+", text)]


def test_a_walk_with_the_cache_and_without(open_page):
    page = open_page("/anatomy?model=tiny-qwen3&prompt=abcdef&new=3&layer=1")
    scene = page.get_by_test_id("kv-scene")
    expect(scene).to_have_text(
        "One new token: in each KV head, 1 key and value computed, 6 read from the cache", timeout=60_000
    )
    assert (rows(page, "Q"), rows(page, "K")) == ([1, 32], [7, 32]), "it opens on the finished picture of a decode step"
    expect(page.locator('.kv-matrix[data-name="A"] .kv-formula')).to_have_text("softmax of Q × Kᵀ / √32")
    expect(page.locator('.kv-matrix[data-name="A"] .kv-scale')).to_have_text("0100%, rounded")
    expect(page.locator('.kv-matrix[data-name="A"] .kv-numbersof span')).to_have_text([re.compile(r"\d+")] * 7)
    expect(page.locator('.kv-matrix[data-name="Q"] .kv-absent')).to_contain_text("used once")
    page.get_by_test_id("kv-next").click()
    expect(scene).to_have_text("Decode: one token enters")
    page.get_by_test_id("kv-back").click()
    expect(scene).to_contain_text("One new token")
    page.locator(".kv-steps button").nth(0).click()
    expect(scene).to_have_text("Prefill: the prompt enters")
    assert page.locator('.kv-matrix[data-there="false"]').count() == 5, "every matrix says what it will hold"
    page.keyboard.press("ArrowRight")
    assert rows(page, "Q") == rows(page, "K") == [6, 32]
    page.locator(".kv-steps button").nth(2).click()
    expect(scene).to_have_text("Decode: one token enters")
    assert (rows(page, "Q"), rows(page, "K"), rows(page, "A")) == ([1, 32], [8, 32], [1, 8]), "all of it"
    expect(page.locator('.kv-matrix[data-name="K"] i[data-pending="true"]')).to_have_count(1)
    expect(page.locator('.kv-codeline[data-lit="true"]')).to_have_text(re.compile("def forward"))
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(scene).to_have_text("A decode step appends one K and one V per layer")
    assert (rows(page, "Q"), rows(page, "K")) == ([1, 32], [8, 32])
    origins = page.locator('.kv-matrix[data-name="K"] .kv-origins i')
    assert [origins.nth(i).get_attribute("data-origin") for i in range(8)] == ["kept"] * 7 + ["now"]
    lit = page.locator('.kv-codeline[data-lit="true"]')
    expect(lit.filter(has_text="cache.append(k, v)")).to_have_count(1)
    expect(lit.filter(has_text="keys [1, 2, 8, 32]")).to_have_count(1)

    page.get_by_role("button", name="No cache").click()
    expect(scene).to_have_text("Nothing was kept")
    assert [origins.nth(i).get_attribute("data-origin") for i in range(8)] == ["again"] * 7 + ["now"]
    assert rows(page, "Q") == [8, 32]
    assert number(page, 1) > 2 * number(page, 0)

    for _ in range(2):
        page.get_by_test_id("kv-next").click()
    box = page.get_by_test_id("kv-matrix-A").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + box["height"] - 5)
    tip = page.locator(".kv-anatomy .kv-tip")
    expect(tip).to_contain_text("share =")
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + 5)
    expect(tip).to_contain_text("masked")
    page.keyboard.press("ArrowLeft")
    expect(scene).to_have_text("All the old scores, once more")


def test_a_mistake_is_made_and_shown(open_page):
    page = open_page("/mistakes?model=tiny-gpt2&mistake=square-mask&prompt=abcdefghijkl")
    expect(page.get_by_test_id("kv-fault")).to_contain_text("torch.ones(T, T,", timeout=60_000)
    expect(page.get_by_text(re.compile("RuntimeError: The size of tensor"))).to_be_visible()
    page.get_by_text("Appended twice", exact=True).first.click()
    expect(page.get_by_test_id("kv-fault")).to_contain_text("return super().append(k, v)", timeout=60_000)
    expect(page.locator(".js-plotly-plot")).to_be_visible()


def test_a_serving_run_is_drawn_and_replayed_and_a_request_is_looked_at(open_page):
    page = open_page("/serving")
    view = page.locator(".kv-serving").first  # another tab has one too
    moment, lanes = view.get_by_test_id("kv-moment"), view.locator(".kv-lanes")
    expect(lanes).to_have_count(3, timeout=60_000)  # the first page of a fresh server
    expect(page.get_by_text("Continuous batching: the first token after")).to_be_visible()
    row, prompt = view.evaluate("(node) => [node.kvRun().rows[1], node.kvRun().prompts[7]]")
    each, steps, memory = together([row])
    figures = figures_of(each)
    assert figures["done"] == 24 and len(memory.kept) == len(steps["ended_s"])
    for measure, name in (("wait", "ttft_s_p50"), ("pause", "itl_s_p99")):
        told = view.locator(f'[data-measure="{measure}"]').nth(1)
        expect(told.locator("b")).to_have_text(f"{float(f'{1e3 * figures[name]:.2g}'):g} ms")

    lanes.nth(1).scroll_into_view_if_needed()
    box = lanes.nth(1).bounding_box()
    page.mouse.click(box["x"] + 20, box["y"] + box["height"] * 7.5 / 24)
    expect(view.get_by_test_id("kv-request")).to_have_value("7")
    expect(view.locator(".kv-requesttext")).to_have_text(prompt + "".join(each[7]["pieces"]))
    at = next(i for i, picture in enumerate(memory.kept) if 7 in [owner for owner, *_ in picture["tables"]])
    view.get_by_test_id("kv-step").fill(str(at + 1))
    expect(moment).to_contain_text(f"Step {at + 1} of {len(memory.kept)}")
    lit = [block for owner, blocks, _ in memory.kept[at]["tables"] if owner == 7 for block in blocks]
    cells = view.locator('.kv-blocks [data-picked="true"]')
    expect(cells).to_have_count(len(lit))
    view.get_by_role("button", name="4×").click()
    view.get_by_test_id("kv-play").click()
    blocks = steps["blocks"]
    expect(moment).to_contain_text(f"Step {blocks.index(max(blocks)) + 1} of", timeout=60_000)


@pytest.mark.parametrize("scene", ["delta", "mamba"])
def test_a_state_with_its_axes_and_scale_is_on_the_first_screen(open_page, scene):
    page = open_page(f"/anatomy?scene={scene}&text=abcdef&steps=3")
    page.set_viewport_size({"width": 1280, "height": 720})
    cells = page.get_by_test_id("kv-state").locator("[data-at]")
    expect(cells.first).to_be_visible(timeout=60_000)
    lines = page.get_by_test_id("kv-growth").locator("polyline")
    expect(lines).to_have_count(2)
    assert [line.get_attribute("data-kind") for line in lines.all()] == ["kept", "other"]
    marks = page.get_by_test_id("kv-growth").locator(".kv-ground + text").all_text_contents()
    assert len(marks) > 2 and marks[0] == "0"
    assert len({mark.split()[1] for mark in marks[1:]}) == 1, "an axis has one unit"
    outlined = page.get_by_test_id("kv-state").locator('[data-chosen="true"]')
    before, after = page.locator(".kv-anatomy").evaluate(
        "(root) => root.kvState().look.steps.slice(0, 16).slice(-2).map((step) => step.written[0])"
    )
    changes = {f"{i},{j}": abs(after[i][j] - old) for i, row in enumerate(before) for j, old in enumerate(row)}
    expect(outlined).to_have_count(1)
    expect(outlined).to_have_attribute("data-at", max(changes, key=changes.get))
    expect(page.locator(".kv-outlined")).to_have_text(
        re.compile(rf"^changed most by “.+”: \S+ → {re.escape(outlined.inner_text())}$")
    )
    expect(page.get_by_test_id("kv-statescale")).to_contain_text("matrix, largest at any token: −")
    page.get_by_test_id("kv-next").click()
    scale = page.get_by_test_id("kv-statescale").bounding_box()
    assert scale["y"] + scale["height"] <= 720
    rows, columns = (1 + max(at) for at in zip(*places(cells), strict=True))
    ticks = page.locator(".kv-tick").all_inner_texts()
    assert ticks == [str(1 + n) for n in [*range(columns), *range(rows)]]
    expect(page.get_by_test_id("kv-watch")).to_contain_text("Look at")
    before = cells.all_inner_texts()
    page.locator(".kv-film button").nth(1).click()  # as it was after the second token
    assert cells.all_inner_texts() != before and len(before) == rows * columns


def test_a_latent_row_is_held_against_the_keys_of_all_heads_and_scores_without_them(open_page):
    page = open_page("/anatomy?scene=latent&text=abcdef&steps=2")
    scene, product = page.get_by_test_id("kv-scene"), page.get_by_test_id("kv-orders")
    expect(scene).to_have_text("MLA caches 36 numbers per token instead of 320", timeout=60_000)
    caches = [page.get_by_test_id(f"kv-grid-cache-{way}") for way in ("expanded", "absorbed")]
    sizes = [cache.get_attribute("aria-label") for cache in caches]
    assert [re.search(r"(\d+) × (\d+)", size).groups() for size in sizes] == [("16", "20"), ("1", "36")]
    expect(product).to_contain_text("absorbed query, 1 × 32")
    for _ in range(4):
        page.get_by_test_id("kv-next").click()
    expect(product).to_contain_text("keys k, 8 × 7")  # of all tokens so far
    page.get_by_test_id("kv-next").click()
    expect(product).to_contain_text(
        re.compile(r"Largest difference from the scores with keys: (0|[\d.]+( × 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?)\.")
    )
    expect(page.locator('.kv-codeline[data-lit="true"]').filter(has_text="q @ self.key_up")).to_have_count(1)


def places(cells):
    """Row and column of each number of the matrix."""
    return [tuple(map(int, at.split(","))) for at in cells.evaluate_all("(all) => all.map((one) => one.dataset.at)")]
