"""What goes into the store comes out of it, is found again, and is handled by name."""

import json
import statistics
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kvviz.base.errors import KvvizError
from kvviz.experiments.comparison.figures import headline
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.store.db.store import Store
from tests.store.db.conftest import keep, made_up, made_up_run

# --- a life -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.worker
def test_a_real_comparison_comes_back_as_it_was_measured(store, real):
    spec, records, document = real
    keep(store, "c-1", spec, records, document)
    back = store.document("c-1")
    assert back == {**document, "id": "c-1", "runs": [{**r, "id": f"c-1-{r['mode']}"} for r in document["runs"]]}
    assert list(back["runs"][0]) == list(document["runs"][0]), "also in the order of its fields"
    assert store.records("c-1") == records


@pytest.mark.worker
def test_a_run_brings_its_steps(store, real):
    spec, records, document = real
    keep(store, "c-1", spec, records, document)
    entry = document["runs"][1]
    run = store.run("c-1-cached")
    assert run.id == "c-1-cached" and run.mode == "cached" and run.comparison == store.get("c-1")
    kept = entry["passes"]["clean"] or entry["passes"]["disturbed"]
    assert [len(repeat) for repeat in run.repeats] == [6] * kept, "neither warm-ups nor disturbed passes are repeats"
    medians = [statistics.median(column) for column in zip(*run.repeats, strict=True)]
    assert medians == pytest.approx(entry["step_s"], abs=2e-9)
    assert all(run.figures[name] == entry[name] for name in ("token_ids", "cache_bytes", "allocated_bytes", "layers"))
    assert run.figures == {**entry, "id": "c-1-cached"}
    assert store.run("c-1-static") is None and store.run("c-1") is None


@pytest.mark.slow
def test_a_batch_keeps_a_row_a_sequence(store, measured):
    spec = ComparisonSpec(model="tiny-gpt2", prompt_tokens=5, batch=2, new_tokens=3, repeats=1, modes=("cached",))
    records, document = measured(spec)
    keep(store, "b", spec, records, document)
    assert store.run("b-cached").figures["token_ids"] == document["runs"][0]["token_ids"]
    assert store.document("b")["runs"][0]["token_ids"] == document["runs"][0]["token_ids"]
    assert store.get("b").prompt == "", "random tokens are no text"
    assert store.get("b").prompt_tokens == 5


@pytest.mark.worker
def test_the_header_tells_what_is_known_so_far(store, real):
    spec, records, document = real
    store.begin("c", replace(spec, prompt="word " * 100).to_dict(), origin="run", title=" a  title ")
    began = store.get("c")
    assert began.state == "running" and began.origin == "run" and began.title == "a title" and began.headline == ()
    assert began.model == "tiny-qwen3" and began.modes == spec.modes and began.new_tokens == 6 and began.batch == 1
    assert began.prompt == ("word " * 100)[:200] and began.prompt_tokens is None
    assert began.created.tzinfo is UTC and datetime.now(UTC) - began.created < timedelta(minutes=1)
    store.append("c", records[:1])
    started = json.loads(records[0])
    known = store.get("c")
    assert known.prompt_tokens == started["prompt"]["tokens"] and known.weights == "random"
    assert known.device_name == started["environment"]["device_name"] and known.dtype == "float32"
    assert known.config_hash == (started.get("config_hash") or "")
    store.finish("c", "done", document)
    assert store.get("c").headline == tuple(headline(document)) and store.get("c").state == "done"


@pytest.mark.worker
def test_what_is_known_comes_from_the_records_where_the_spec_is_silent(store, real):
    _, records, document = real
    keep(store, "i", {}, [json.dumps(json.loads(text)) for text in records], origin="import")
    found = store.get("i")
    assert found.model == "tiny-qwen3" and found.modes == ("uncached", "cached")
    assert found.prompt == "Once upon a time" and found.prompt_tokens == 16
    keep(store, "d", {}, (), document, origin="import")
    assert store.get("d").model == "tiny-qwen3" and store.get("d").device == "cpu"
    assert store.run("d-cached").repeats == (), "a document alone has no single passes"


@pytest.mark.worker
def test_what_was_cut_off_is_kept_and_replayed(store, real):
    spec, records, _ = real
    keep(store, "c", spec, records[:9], state="stopped")
    assert store.get("c").state == "stopped" and store.records("c") == records[:9]
    assert store.document("c") is None and store.run("c-cached") is None
    keep(store, "f", spec, [], state="failed")
    assert store.records("f") == [] and store.records("unknown") == []
    assert store.get("unknown") is None and store.document("unknown") is None


def test_only_whole_passes_are_repeats(store):
    texts, document = made_up(steps=4, repeats=2)
    odd = [
        {"t": "times", "mode": "cached", "repeat": 2, "from": 0, "s": [1.0, 2.0]},  # cut off
        {"t": "times", "mode": "cached", "repeat": -1, "from": 0, "s": [1.0] * 4},  # a warm-up
        {"t": "times", "mode": "cached", "repeat": 3, "from": 2, "s": [1.0] * 4},  # its beginning is missing
    ]
    keep(store, "c", records=[*texts, *map(json.dumps, odd)], document=document)
    assert [len(repeat) for repeat in store.run("c-cached").repeats] == [4, 4]


def test_a_pass_comes_in_pieces(store):
    _, document = made_up(steps=4, modes=("cached",))
    pieces = [(0, [0.1, 0.2]), (2, [0.3]), (3, [0.4])]
    texts = [json.dumps({"t": "times", "mode": "cached", "repeat": 0, "from": at, "s": s}) for at, s in pieces]
    keep(store, "c", records=texts, document=document)
    assert store.run("c-cached").repeats == ((0.1, 0.2, 0.3, 0.4),)


def test_records_that_come_after_the_end_keep_their_place(store):
    texts, document = made_up()
    keep(store, "c", records=texts, document=document)
    store.append("c", ['{"t":"done"}'])
    store.finish("c", "done", document)
    assert store.records("c") == [*texts, '{"t":"done"}'] and len(store.run("c-cached").repeats) == 2


def test_a_sweep_lies_beside_the_comparisons(store):
    keep(store, "s", {"models": ["gpt2"], "modes": ["cached"]}, document={"rows": [{"a": 1}]}, kind="sweep")
    keep(store, "c", document=made_up()[1])
    assert [found.id for found in store.find(kind="sweep")] == ["s"] and [f.id for f in store.find()] == ["c"]
    assert store.count(kind=None) == 2
    assert store.document("s") == {"id": "s", "rows": [{"a": 1}]} and store.get("s").headline == ()


def test_what_does_not_fit_gets_a_sentence(store):
    store.begin("c", {})
    for wrong in (
        lambda: store.begin("c", {}),
        lambda: store.append("nobody", ["{}"]),
        lambda: store.finish("nobody", "done"),
        lambda: store.rename("nobody", "x"),
        lambda: store.delete("nobody"),
        lambda: store.rename("c", "x" * 201),
        lambda: store.tag("c", ["x" * 41]),
        lambda: store.tag("c", [str(n) for n in range(21)]),
        lambda: store.finish("c", "done", {"runs": [made_up_run("cached", 2)] * 2}),
    ):
        with pytest.raises(KvvizError):
            wrong()
    assert store.get("c").state == "running" and store.document("c") is None, "nothing was half done"


# --- found again ------------------------------------------------------------------------------------------------


@pytest.fixture
def several(store):
    for work_id, prompt, model in (
        ("a", 'The 100% cat\'s "purr"', "gpt2"),
        ("b", "a dog_house \\ back", "tiny-qwen3"),
        ("c", "Größe und STRASSE", "tiny-qwen3"),
    ):
        keep(store, work_id, ComparisonSpec(model=model, prompt=prompt))
    store.rename("b", "Second Lecture")
    store.tag("c", ["lab 01", "  long   prompts ", "lab 01", " "])
    return store


def found(store, text="", **filters):
    ids = [stored.id for stored in store.find(text, **filters)]
    assert store.count(text, **filters) == len(ids)
    return "".join(ids)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", "cba"),  # the newest first
        ("CAT", "a"),
        ("100%", "a"),
        ("%", "a"),
        ("_", "b"),
        ("dog house", "b"),
        ("dog horse", ""),
        ("cat's", "a"),
        ('"purr"', "a"),
        ("\\", "b"),
        ("größe", "c"),
        ("straße", "c"),  # casefold: ß is ss
        ("qwen3", "cb"),
        ("qwen3 lecture", "b"),
        ("lab prompts", "c"),
        ("' OR 1=1 --", ""),
        ("\0", ""),
        ("\ud800", ""),
        ("*", ""),
        ("a" * 5000, ""),
    ],
)
def test_search_is_literal_and_knows_no_case(several, text, ids):
    assert found(several, text) == ids


def test_filters(several):
    assert found(several, model="gpt2") == "a" and found(several, model="gpt2%") == ""
    assert found(several, tag="lab 01") == "c" and found(several, tag="lab") == "" and found(several, tag="%") == ""
    assert found(several, "dog", model="tiny-qwen3") == "b"
    assert several.get("c").tags == ("lab 01", "long prompts")
    several.tag("c", [])
    assert several.get("c").tags == () and found(several, tag="lab 01") == ""


def test_pages_of_a_list(several):
    pages = [several.find(limit=2, offset=start) for start in (0, 2, 4)]
    assert [[stored.id for stored in page] for page in pages] == [["c", "b"], ["a"], []]


def test_what_was_deleted_is_purged_for_good_and_its_id_stays(several):
    at = time.time()
    several.delete("b")
    assert several.purge(before=at - 1) == 0 and several.get("b").prompt
    kept = several.records("a")
    assert several.purge(before=time.time()) == 1 and several.purge(before=time.time()) == 0
    gone = several.get("b")
    assert gone.deleted and not (gone.prompt or gone.title or gone.headline)
    assert several.document("b") is None and several.records("b") == [] and several.run("b-cached") is None
    assert found(several) == "ca" and several.records("a") == kept
    with pytest.raises(KvvizError, match="deleted for good"):
        several.restore("b")
    with pytest.raises(KvvizError, match="holds b already"):
        several.begin("b", {})


def test_delete_is_undone(several):
    several.delete("b")
    assert found(several) == "ca" and several.get("b").deleted
    several.restore("b")
    assert found(several) == "cba" and not several.get("b").deleted
    with pytest.raises(KvvizError, match="holds no 'd'"):
        several.restore("d")


# --- hostile texts ----------------------------------------------------------------------------------------------

HOSTILE = ["'; DROP TABLE works; --", "\0", "\ud800", "<script>alert(1)</script>", "\x1e", "\n\n", "🎉" * 300, "%_\\"]


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_may_stand_anywhere(store, text):
    spec = {"model": text, "prompt": text, "modes": [text], "dtype": [text], "batch": 2**80, "new_tokens": "many"}
    record = json.dumps({"t": "started", "prompt": {"text": text, "tokens": True}, "model": [text], "spec": text})
    run = {**made_up_run("cached", 2), "text": text, "token_ids": [2**70, 1], "mode": "cached"}
    store.begin("c", spec, title=text[:200])
    store.append("c", [record, "[1]", '"times"', '{"t":"times"}', "[" * 100_000 + '"times"'])
    store.tag("c", [text[:40]])
    store.finish("c", "done", {"runs": [run], "prompt": text, "environment": text}, message=text)
    assert store.records("c")[0] == record
    assert store.document("c")["runs"][0]["text"] == text and store.document("c")["prompt"] == text
    assert store.run("c-cached").figures["token_ids"] == [2**70, 1]
    assert store.get("c").batch is None and found(store) == "c"


@pytest.mark.parametrize("document", [{}, {"runs": None}, {"runs": [1]}, {"runs": [{}]}, {"runs": {"mode": "x"}}])
def test_a_document_of_another_shape_is_kept_as_it_is(store, document):
    keep(store, "c", document=document)
    assert store.document("c") == {**document, "id": "c"} and store.get("c").headline == ()


def test_an_id_that_is_no_text_finds_nothing(store):
    with pytest.raises(KvvizError):
        store.get("\ud800")
    with pytest.raises(KvvizError, match="number"):
        store.find(offset=2**70)
    assert store.get("'") is None and store.run("-" * 10_000) is None


# --- ends -------------------------------------------------------------------------------------------------------


@pytest.mark.worker
def test_work_is_unfinished_once_its_store_has_gone(tmp_path, real):
    spec, records, _ = real
    path = tmp_path / "kvviz.sqlite"
    first, second = Store(path), Store(path)
    first.begin("c", spec.to_dict())
    first.append("c", records[:5])
    keep(first, "ended")
    assert second.unfinished() == [], "someone is still at it"
    first.close()
    assert [stored.id for stored in second.unfinished()] == ["c"]
    second.finish("c", "interrupted")
    assert second.get("c").state == "interrupted" and second.records("c") == records[:5]
    assert second.get("ended").state == "done" and second.unfinished() == []
    second.close()
