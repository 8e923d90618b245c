"""The compare page as Streamlit runs it: runs from a link, figures, renaming, deleting with undo, files in and out."""

import json

import pytest
import streamlit as st

from kvviz.base.errors import KvvizError
from kvviz.base.settings import Settings
from kvviz.base.words import brief, human, millis, ratio
from kvviz.charts.curves import at_the_end
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.notebook.compare import compare
from kvviz.server import persister as keeping
from kvviz.server.inbox import Inbox, inbox
from kvviz.server.jobs import mark_of
from kvviz.server.persister import Persister
from kvviz.store.files import webpage
from kvviz.ui.compare.share import take, written
from kvviz.ui.folders import PAGES
from tests.experiments.sweep.test_spec import GRID, elsewhere
from tests.pages.conftest import answer_all, charts
from tests.server.test_several_workers import Silent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured():
    """A real comparison of a tiny model: its document and its records."""
    done = compare("tiny-gpt2", prompt="Once upon a time", new_tokens=6, repeats=2)
    return done.document, done.records


@pytest.fixture
def keep(store, measured):
    """Put the comparison into the store under a name, with fields changed; `step_s`: what each step of each pass took,
    whatever disturbed the real ones.
    """

    def put(work_id, **changes):
        document, records = measured
        if each := changes.pop("step_s", None):
            records = [{**one, "s": [each] * len(one["s"])} if one["t"] == "times" else one for one in records]
            records = [{**one, "clean": True} if one["t"] == "clocked" else one for one in records]
        store.begin(work_id, {"model": "tiny-gpt2", "prompt": "Once upon a time"}, title=changes.pop("title", ""))
        store.append(work_id, [json.dumps(record) for record in records])
        store.finish(work_id, "done", {**document, **changes})
        return [f"{work_id}-{mode}" for mode in ("uncached", "cached")]

    return put


@pytest.fixture
def visit(open_page, store, monkeypatch):
    option = st.get_option
    monkeypatch.setattr(st, "get_option", lambda name: "127.0.0.1" if name == "server.address" else option(name))
    return lambda runs="": open_page("compare", **({"runs": runs} if runs else {}))


def figures(app):
    return next(frame.value for frame in app.dataframe if "beyond the spread" in frame.value.columns)


def test_an_empty_store_says_what_to_do_and_shows_the_kept_recordings(visit):
    app = visit()
    assert any("run a comparison on the live page" in caption.value for caption in app.caption)
    cpu, gpu, here, there = charts(app)
    written = [[label["text"] for label in passes["layout"]["annotations"]] for passes in (here, there)]
    assert "mini-gpt2" in written[0][0] and "NVIDIA H100" in written[1][0]
    assert "<b>KV cache: 1.1× as fast</b>" in written[1]
    assert [len(passes["data"][0]["x"]) for passes in (here, there)] == [2, 3], "a bar for each run"
    assert here["layout"]["xaxis"]["range"] != there["layout"]["xaxis"]["range"], "each recording has its own scale"
    labels = [label["text"] for label in gpu["layout"]["annotations"]]
    named = [label.rpartition("<br>")[0] for label in sorted(labels) if "<br>" in label]
    assert named == ["KV cache", "KV cache<br>compiled", "No cache", "passes differ,"]
    first, second = (header.value for header in app.header if "without the cache" in header.value)
    assert first == "mini-gpt2 on a CPU: climbs at once without the cache"
    assert second == "GPT-2 small on a GPU: flat to token 249 without the cache"
    assert (
        "These are two **recordings**, drawn to the same vertical scale. Machine, model and length differ, so compare "
        "shapes. Thick: running medians; a band: the quartiles." in [words.value for words in app.markdown]
    )
    (there,) = (caption.value for caption in app.caption if caption.value.startswith("NVIDIA H100"))
    assert there.endswith("6 passes, recorded on 2026\u201111\u201123.")
    said = [words.value for words in app.markdown]
    assert any(
        one.endswith(
            "Last tenth of the steps against the first: 5.5 times as long without the cache, 1.0 times with it. Not "
            "measured: why the first tokens (circles) took 1.1 and 1.3 ms for the same prompt."
        )
        for one in said
    )
    assert any("first tenth until token 249,** most likely because a st" in words for words in said)
    assert any(
        words.endswith(
            "for many tokens as for one. Not measured: why it then climbs as it does, and why the first tokens "
            "(circles) took 6.0, 5.3 and 2.5 ms for the same prompt."
        )
        for words in said
    )
    assert (
        "**Compiled into one call, the cached step takes 1.5 ms instead of 4.0 ms,** which fits "
        "starting the operations as the cause." in said
    )
    assert (
        "- Why the last tenth is 24% above the first."
        "\n- Why passes near token 286 differ (the wide band)."
        "\n- What compilation does without the cache." in said
    )
    assert "No cache<br>5.3 ms median" in labels, "the median of the last tenth, as the live page says it"
    tenth, flat = gpu["layout"]["shapes"]
    assert (flat["x0"], flat["x1"]) == (249, 249) and "flat to 249" in labels
    assert (tenth["x0"], tenth["x1"]) == (462, 512)
    marks = {"first token: the prefill", "the last tenth's medians →"}
    assert marks < {label["text"] for label in cpu["layout"]["annotations"]} and marks < set(labels)
    assert "passes differ,<br>cause not measured" in labels
    assert [figure["layout"]["yaxis"]["title"]["text"] for figure in (cpu, gpu)] == [
        "ms for this token on a CPU",
        "ms for this token on a GPU",
    ]
    boxes = [box.label for box in app.expander]
    assert boxes[:2] == ["Is that more than noise? Every pass of both", "What was not measured for GPT-2 small"]
    assert boxes[2:4] == ["Pick runs to compare", "Open a file"]
    trust = [
        words.value for words in app.markdown if words.value.startswith(("More than noise", "Some passes overlap"))
    ]
    assert len(trust) == 2 and "1.05 to 1.15, lies on one side of 1" in trust[1]
    assert "spikes included, take 2.43 s (No cache), 2.23 s (KV cache), 757 ms (KV cache, compiled)." in trust[1]
    assert trust[1].endswith("(95% interval): 1.1 (1.05 to 1.15); 3.2, cached and compiled (3.11 to 3.38).")


def test_a_link_lays_runs_over_one_another(visit, keep):
    app = visit(",".join(keep("one")))
    assert list(figures(app)["run"]) == ["No cache", "KV cache"]
    passes, spec = charts(app)
    assert len(passes["data"][0]["x"]) == 2
    assert " times as fast as No cache" in next(header.value for header in app.header)
    *names, tenth = [label["text"] for label in spec["layout"]["annotations"] if "prefill" not in label["text"]]
    ends = [name.split("<br>") for name in names]
    assert tenth == "the last tenth's medians →"
    assert {name for name, _ in ends} == {"No cache", "KV cache"} and all(end.endswith(" ms median") for _, end in ends)


@pytest.mark.parametrize(
    ("view", "claim"),
    [
        ("step", "At the end a token takes"),
        ("total", "The whole run takes"),
        ("cache", "At the end the cache holds"),
        ("speedup", "Against No cache, the whole run goes"),
    ],
)
def test_each_view_has_its_claim_with_the_figures_of_its_runs(visit, keep, measured, view, claim):
    app = visit(",".join(keep("one")))
    app.segmented_control(key="c_view").set_value(view).run()
    said = next(words.value for words in app.markdown if words.value.startswith(f"**{claim}"))
    uncached, cached = measured[0]["runs"]
    figures = {
        "step": millis(at_the_end(cached["step_s"]), 2),
        "total": brief(uncached["total_s"]),
        "cache": human(cached["cache_bytes"][-1]),
        "speedup": f"{ratio(cached['speedup'])} times as fast (KV cache)",
    }
    assert figures[view] in said


def test_a_question_is_answered_with_the_runs_of_the_first_comparison(visit, keep, measured):
    app = answer_all(visit(",".join([*keep("one"), *keep("two", prompt_tokens=99)][:3])))
    words = next(box for box in app.expander if "total quadratic" in box.label).markdown[-1].value
    prompt = measured[0]["prompt_tokens"]
    read = sum(prompt + i for i in range(6))
    assert f"No cache, {read} tokens were read for 6 new ones" in words
    assert f"KV cache, {prompt + 5} tokens were read for 6 new ones" in words


def test_a_run_that_is_gone_is_said(visit, keep):
    app = visit(",".join([*keep("one"), "nothing-cached", "../../x-cached"]))
    assert any("2 of the runs in this link are not kept here" in warning.value for warning in app.warning)
    assert len(figures(app)) == 2


def test_a_run_that_has_only_just_ended_is_shown(open_page, store, measured, scheduler_without_worker):
    document, records = measured
    scheduler_without_worker.keep_in(Persister(scheduler_without_worker, lambda: store))
    own = scheduler_without_worker.submit(ComparisonSpec(model="tiny-gpt2", prompt="x"))
    for record in [*records[:-1], {"t": "done", "document": document}]:
        scheduler_without_worker.record(own, record)
    app = open_page("compare", runs=f"{own}-uncached,{own}-cached")
    assert len(figures(app)) == 2


def test_a_run_that_is_still_measured_is_not_called_deleted_and_stays_in_the_link(open_page, scheduler_without_worker):
    own = scheduler_without_worker.submit(ComparisonSpec(model="tiny-gpt2", prompt="x"))
    app = open_page("compare", runs=f"{own}-uncached,{own}-cached,nothing-cached")
    assert any("2 of the runs in this link are not finished yet" in info.value for info in app.info)
    assert [warning.value[:8] for warning in app.warning] == ["1 of the"]
    assert app.query_params["runs"] == f"{own}-uncached,{own}-cached"


def test_other_work_is_told_in_words(visit, keep):
    app = visit(",".join([keep("one")[1], keep("two", prompt_tokens=99)[1]]))
    assert any("prompt lengths" in box.value for box in app.info)


def test_a_run_that_was_disturbed_is_marked_in_the_list_and_where_it_is_shown(visit, keep, measured):
    busy = {"clean": 0, "disturbed": 2, "stopped_because": "x"}
    slow = [{**r, "itl_s": 30 * r["itl_s"], "total_s": 30 * r["total_s"], "passes": busy} for r in measured[0]["runs"]]
    app = visit(",".join([keep("quiet", step_s=0.01)[1], keep("busy", runs=slow, step_s=0.3)[1]]))
    (said,) = (box.value for box in app.warning)
    assert "took 30 times as long as" in said and "Other work disturbed every pass of it" in said
    assert figures(app)["total"][1].startswith("≈ ")
    listed = next(frame.value for frame in app.dataframe if "disturbed" in frame.value.columns)
    assert sorted(listed["disturbed"]) == ["", "", "30.0× a like run", "30.0× a like run"]


def test_side_by_side_for_the_projector(visit, keep):
    app = visit(",".join(keep("one")))
    app.toggle(key="c_apart").set_value(True).run()
    assert not app.exception
    assert [head.value for head in app.header][1:3] == ["A: No cache", "B: KV cache"]
    assert len(charts(app)) == 3


def test_rename_tag_delete_and_undo(visit, keep, store):
    app = visit(",".join(keep("one")))
    app.text_input(key="c_title_one").set_value("<b>mine</b>")
    app.text_input(key="c_tags_one").set_value("a, b")
    app.button(key="c_save").click().run()
    assert (store.get("one").title, store.get("one").tags) == ("<b>mine</b>", ("a", "b"))
    app.button(key="c_delete").click().run()
    assert not app.exception and store.get("one").deleted
    assert store.find() == []
    app.button(key="c_undo").click().run()
    assert not app.exception and not store.get("one").deleted
    assert len(figures(app)) == 2


def test_runs_of_another_browser_can_be_looked_at_and_nothing_else(visit, keep, store, measured):
    document, _ = measured
    store.begin("theirs", {"model": "tiny-gpt2"}, made_by=mark_of("t" * 22))
    store.finish("theirs", "done", document)
    app = visit("theirs-cached")
    assert len(figures(app)) == 1
    assert not [button for button in app.button if button.key in ("c_delete", "c_save")]
    assert any("other browsers'" in caption.value for caption in app.caption)


def test_where_strangers_may_come_nobodys_run_is_nobodys_to_delete(visit, keep, monkeypatch):
    monkeypatch.setattr("kvviz.ui.shared.session.settings", lambda: Settings(public=True))
    app = visit(",".join(keep("one")))
    assert not [button for button in app.button if button.key == "c_delete"]


def test_ones_own_run_may_be_deleted_wherever_the_server_is(visit, store, measured, monkeypatch):
    document, _ = measured
    store.begin("own", {"model": "tiny-gpt2"}, made_by=mark_of("o" * 22))
    store.finish("own", "done", document)
    monkeypatch.setattr("kvviz.ui.shared.session.settings", lambda: Settings(public=True))
    monkeypatch.setattr("streamlit.runtime.context.ContextProxy.cookies", {"kvviz_browser": "o" * 22})
    app = visit("own-cached")
    app.button(key="c_delete").click().run()
    assert not app.exception and store.get("own").deleted


def test_a_store_that_fails_is_a_sentence_on_the_page(visit, monkeypatch):
    app = visit()
    monkeypatch.setattr(keeping, "library", broken)
    monkeypatch.setattr("kvviz.ui.compare.form.library", broken)
    app.run()
    assert not app.exception and any("the disk is gone" in error.value for error in app.error)


def broken():
    raise KvvizError("the disk is gone")


def test_searching_finds_by_word(visit, keep):
    keep("one", title="the red one")
    keep("two", title="the blue one")
    app = visit()
    app.text_input(key="c_search").set_value("blue").run()
    listed = next(frame.value for frame in app.dataframe if "speed-up" in frame.value.columns)
    assert set(listed["title"]) == {"the blue one"} and len(listed) == 2


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "html"])
def test_every_file_has_content(store, keep, form):
    keep("one")
    content = written("one", form)
    assert len(content) > 500


def test_what_is_handed_on_can_be_taken_in_again(store, keep):
    keep("one")
    runs = take(written("one", "json"), "mine.json").runs
    again = store.run(runs[1])
    assert again.repeats == store.run("one-cached").repeats
    assert again.comparison.origin == "import" and again.comparison.title == "mine"


def test_a_document_from_the_command_line_can_be_taken_in(store, measured):
    document, _ = measured
    runs = take(json.dumps(document).encode(), "gpu.json").runs
    assert store.run(runs[0]).figures["step_s"] == document["runs"][0]["step_s"]


def test_dropped_files_are_drawn_linked_or_refused(visit, store, keep):
    keep("one")
    app = visit()
    dropped = [("mine.json", written("one", "json")), ("grid.jsonl", elsewhere(GRID)), ("bad.json", b"[*x*](y)")]
    app.get("file_uploader")[0].set_value([(name, data, "application/json") for name, data in dropped]).run()
    assert not app.exception and list(figures(app)["run"]) == ["No cache", "KV cache"]
    (sweep,) = store.find(kind="sweep")
    assert any(f"sweep={sweep.id}" in link.proto.query_string for link in app.get("page_link"))
    assert ["bad.json: this file is not JSON" in error.value for error in app.error] == [True]
    app.run()
    assert store.count(kind=None) == 3, "a rerun takes nothing in again"


def test_runs_of_the_watched_folder_are_listed_and_drawn_as_they_come(visit, store, keep, tmp_path):
    keep("one")
    folder = tmp_path / "inbox"
    folder.mkdir()
    watching = Inbox(folder, lambda: store)
    inbox.use(watching)
    try:
        app = visit()
        assert any("No file" in caption.value for caption in app.caption)
        (folder / "a.json").write_bytes(written("one", "json"))
        (folder / "bad.json").write_text("{}")
        watching.look()
        watching.look()
        app.toggle(key="c_follow").set_value(True).run()
        assert not app.exception and len(figures(app)) == 2
        listed = next(frame.value for frame in app.dataframe if "file" in frame.value.columns)
        assert dict(zip(listed["file"], listed["state"], strict=True)) == {"a.json": "kept", "bad.json": "refused"}
    finally:
        inbox.use(None)


def test_html_holds_no_address_and_no_script_of_the_prompt(store, keep, measured):
    document, records = measured
    page = webpage.to_html({**document, "prompt": "</script><script>alert(1)</script>"}, records)
    assert "<script>alert(1)" not in page


def test_another_link_is_taken_over(visit, keep):
    """A room's leader lays another run over, or the browser goes back."""
    one, other = keep("abc")[0], keep("def")[1]
    app = visit(f"{one},{other}")
    for asked in ([other, one], [one, other, "abc-cached"], []):
        app.query_params["runs"] = ",".join(asked)
        app.run()
        assert app.session_state.c_runs == asked
        app.run()
        assert app.session_state.c_runs == asked
    assert not app.exception


def test_what_was_picked_stands_when_the_address_names_none(visit, keep):
    runs = keep("abc")
    app = visit(",".join(runs))
    app.switch_page(str(PAGES / "live.py")).run()
    app.query_params.clear()
    app.switch_page(str(PAGES / "compare.py")).run()
    assert app.session_state.c_runs == runs


@pytest.fixture
def two_workers(visit, keep, measured):
    """The page with a comparison that cpu:0 measured, on a server with the workers cpu:0 and cpu:1."""
    place = {"device": "cpu", "device_name": "a test's device"}
    runs = keep("one", environment={**measured[0]["environment"], **place, "worker": "cpu:0"})
    app = visit()
    here = app.scheduler.device
    app.scheduler.employ(*(Silent(name) for name in ("cpu:0", "cpu:1")))
    for worker in app.scheduler.workers:
        worker.received("-", "hello", json.dumps({**here, **place, "threads": 1, "free_bytes": 3 * 2**30}))
    app.session_state["c_runs"] = runs
    return app.run()


def test_the_same_work_on_another_worker_lies_on_one_chart(two_workers, keep, measured):
    app = two_workers
    assert app.selectbox(key="c_device_one").options == ["cpu:1: a test's device, 3.0 GiB of 16.0 GiB free"]
    app.button(key="c_there").click().run()
    assert not app.exception
    (job,) = app.scheduler.jobs()
    assert (job.spec.device, job.spec.prompt, job.spec.modes) == ("cpu:1", "Once upon a time", ("uncached", "cached"))
    assert [worker.name for worker in app.scheduler.workers if worker.job is job] == ["cpu:1"]
    assert app.button(key="c_there").disabled and len(figures(app)) == 2
    there = {**measured[0]["environment"], "device_name": "a test's device", "worker": "cpu:1"}
    document = {**measured[0], "environment": there}
    app.scheduler.workers[1].received(job.id, "done", json.dumps({"t": "done", "document": document}))
    assert len(figures(app.run())) == 2, "it is measured, and not kept yet"
    keep(job.id, environment=there)
    names = list(figures(app.run())["run"])
    assert names == [f"{mode}, {worker}" for mode in ("No cache", "KV cache") for worker in ("cpu:0", "cpu:1")]


def test_what_another_worker_did_not_measure_is_said(two_workers):
    app = two_workers
    app.button(key="c_there").click().run()
    (job,) = app.scheduler.jobs()
    app.scheduler.workers[1].received(job.id, "failed", json.dumps({"t": "failed", "message": "no memory"}))
    app.run()
    (said,) = (warning.value for warning in app.warning)
    assert said.startswith("The same work was not measured on cpu") and said.endswith("no memory.")
    assert not app.button(key="c_there").disabled and len(figures(app)) == 2
