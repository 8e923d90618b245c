"""Out and in again: the same run; whatever else a file holds gets an answer or one sentence."""

import copy
import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.base.errors import KvvizError
from kvviz.store.files import exchange, reading, tables
from kvviz.store.files.webpage import _figure, rendered
from kvviz.ui.folders import ASSETS
from tests.draws import ORDINARY, draws


@pytest.mark.slow
def test_export_and_import_give_the_same(made):
    found = reading.read(reading.to_json(made.records, made.document))
    assert found.document == made.document
    assert found.records == made.records[1:], "how the model was loaded is not part of a comparison"


def test_the_json_of_run_is_a_comparison_too(made):
    found = reading.read(json.dumps(made.document).encode())
    assert (found.document, found.records) == (made.document, [])
    assert found.spec["modes"] == ["uncached", "cached", "unpassed"]


def test_a_document_of_the_contract_alone(made):
    """Fields that are more than the contract asks for may be missing; what stands in their place is said."""
    extra = ("outliving_bytes", "memory", "itl_p99_s", "repeatable", "divergence_margin", "top_margin", "estimate")
    extra += ("predicted_s", "prediction_error", "prediction_bias")
    more = ("prompt", "sampling", "config_hash", "rates", "paces")
    bare = {name: value for name, value in made.document.items() if name not in more}
    bare["runs"] = [{k: v for k, v in run.items() if k not in extra} for run in bare["runs"]]
    document = reading.read(json.dumps(bare)).document
    assert document["prompt"] is None and document["runs"][0]["top_margin"] is None
    assert document["rates"] is None and document["runs"][0]["estimate"] is None
    assert document["runs"][0]["step_s"] == made.document["runs"][0]["step_s"]


def test_the_work_can_be_asked_for_again(made):
    from kvviz.experiments.comparison.spec import ComparisonSpec

    again = ComparisonSpec.from_dict(reading.read(reading.to_json(made.records, made.document)).spec)
    assert (again.model, again.modes, again.dtype) == ("tiny-qwen3", ("uncached", "cached", "unpassed"), "float32")
    assert again == ComparisonSpec.from_dict({**made.records[1]["spec"], "weights": "random", "device": "cpu"})


def test_a_file_with_the_names_of_before_the_first_release_is_read():
    data = gzip.decompress((ASSETS / "live" / "h100-gpt2.json.gz").read_bytes())
    old, found = json.loads(data)["document"], reading.read(data).document
    renamed = set(old["paces"]) - set(found["paces"])
    assert renamed == {"attention", "joined", "activation", "elementwise"}
    removed = (Path(__file__).parents[3] / "CHANGELOG.md").read_text().partition("### Removed")[2]
    assert all(f"`{name}`" in removed for name in renamed), "what is withdrawn stands in CHANGELOG.md"
    assert found["paces"]["streamed"] == old["paces"]["streamed"] and found["paces"]["attending"] == []
    assert [run["predicted_s"] for run in found["runs"]] == [run["predicted_s"] for run in old["runs"]]


def test_another_id(made):
    renamed = reading.read(reading.to_json(made.records, made.document)).renamed("new")
    assert renamed.document["id"] == renamed.records[0]["id"] == "new"
    assert [run["id"] for run in renamed.document["runs"]] == ["new-uncached", "new-cached", "new-unpassed"]
    assert reading.read(reading.to_json(renamed.records, renamed.document)) == renamed


def test_a_recording_holds_the_records_alone(single):
    found = reading.read(reading.to_json(single.records))
    assert found.document is None and found.records == single.records[1:]
    assert found.spec["modes"] == ["uncached", "cached", "unpassed"]
    assert found.renamed("new").records[0]["id"] == "new"
    with pytest.raises(KvvizError, match="no figures"):
        exchange.written(found, "html")


# --- what does not fit ------------------------------------------------------------------------------------------


def changed(value, path, change):
    """A copy in which `change` has been made of what lies at `path`."""
    value = copy.deepcopy(value)
    place = value
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = change(place[path[-1]]) if callable(change) else change
    return value


RUN = ("runs", 1)


@pytest.mark.parametrize(
    ("path", "change", "says"),
    [
        (("id",), 7, "id has"),
        (("model",), ["x"], "model has"),
        (("model",), "\ud800", "whole characters"),
        (("environment",), None, "environment has"),
        (("environment", "threads"), 2.5, "threads"),
        (("environment", "device_name"), "x" * 300, "device_name"),
        (("prompt",), 3, "prompt has"),
        (("batch",), True, "batch has"),
        (("batch",), 2, "batch"),
        (("new_tokens",), 2, "new_tokens"),
        (("repeats",), 0, "repeats"),
        (("repeats",), 3, "repeats"),
        (("sampling", "temperature"), -1, "temperature"),
        (("reference",), "cached!", "reference"),
        (("reference",), "static", "reference"),
        (("identical",), False, "identical"),
        (("runs",), [], "runs"),
        (("runs",), {}, "runs has"),
        (("runs", 0, "mode"), "cached", "each named once"),
        ((*RUN, "mode"), "KV <b>", "short name"),
        ((*RUN, "mode"), "static", "other modes"),
        ((*RUN, "text"), ["a"], "text"),
        ((*RUN, "token_ids"), lambda ids: ids[:-1], "token_ids"),
        ((*RUN, "token_ids"), lambda ids: [ids], "token_ids"),
        ((*RUN, "token_ids"), lambda ids: [*ids[:-1], ids[-1] + 1], "first_divergence"),
        ((*RUN, "token_ids", 0), -1, "token_ids"),
        ((*RUN, "first_divergence"), 2, "first_divergence"),
        ((*RUN, "step_s", 0), 10**400, "step_s"),
        ((*RUN, "step_s", 0), -0.5, "step_s"),
        ((*RUN, "step_s"), [], "step_s"),
        ((*RUN, "step_s_q1"), lambda steps: steps[1:], "step_s_q1"),
        ((*RUN, "step_s_q1", 2), 99, "quartiles"),
        ((*RUN, "cache_bytes"), lambda sizes: [*sizes, 1], "cache_bytes"),
        ((*RUN, "cache_bytes", 1), 1.5, "cache_bytes"),
        ((*RUN, "ttft_s"), 1e-9, "ttft_s"),
        ((*RUN, "itl_s"), None, "itl_s"),
        ((*RUN, "total_s"), 0, "total_s"),
        ((*RUN, "total_s"), 5, "tokens_per_s"),
        ((*RUN, "speedup"), 300, "speedup"),
        ((*RUN, "speedup"), None, "speedup"),
        ((*RUN, "peak_bytes"), 12, "figures"),
        ((*RUN, "layers", 0, "held"), "all", "held"),
        ((*RUN, "layers", 0, "key_shape"), [1] * 9, "key_shape"),
        ((*RUN, "memory", "allocator"), 1, "allocator"),
        ((*RUN, "cache_class"), 5, "cache_class"),
        (("rates",), None, "with the rates"),
        (("rates", "read"), 0, "read has"),
        (("rates",), {"read": 1e9}, "rates lacks"),
        ((*RUN, "estimate", "tokens"), 0, "tokens has"),
        ((*RUN, "estimate", "scan_s"), -1.0, "scan_s has"),
        ((*RUN, "estimate"), [1], "estimate has"),
    ],
)
def test_a_document_that_does_not_fit_gets_a_sentence_with_the_field(single, path, change, says):
    document = changed(single.document, path, change)
    with pytest.raises(KvvizError, match=says) as caught:
        reading.read(reading.to_json(single.records, document))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("kind", ["proof", "times"])
def test_records_that_tell_of_another_run_are_refused(single, kind):
    number = next(i for i, record in enumerate(single.records) if record["t"] == kind and record.get("repeat", 0) >= 0)
    records = single.records[:number] + single.records[number + 1 :]
    with pytest.raises(KvvizError, match=r"follow each other|other (repeats|steps)"):
        reading.read(reading.to_json(records, single.document))
    slower = copy.deepcopy(single.records)
    for record in slower:
        if record["t"] == "times":
            record["s"] = [s * 2 for s in record["s"]]
    with pytest.raises(KvvizError, match="other seconds"):
        reading.read(reading.to_json(slower, single.document))


@pytest.mark.parametrize(
    "data",
    [
        "",
        b"",
        b"\xff\xfe\x00",
        "[]",
        "null",
        "7",
        '"x"',
        "NaN",
        '{"runs": []}',
        '{"runs": NaN}',
        '{"kvviz": []}',
        '{"kvviz": "comparison"}',
        '{"kvviz": "comparison", "version": 2}',
        '{"kvviz": "comparison", "version": 1}',
        '{"kvviz": "comparison", "version": 1, "records": []}',
        '{"kvviz": "comparison", "version": 1, "records": [], "document": []}',
        '{"kvviz": "comparison", "version": 1, "records": [{"t": []}], "document": {}}',
        '{"kvviz": "recording", "version": 1, "records": []}',
        '{"kvviz": "recording", "version": 1, "records": [{"t": "started"}]}',
        "[" * 100_000,
        '{"runs":' * 50_000,
        "1" * 5000,
        '{"runs": 1e999}',
    ],
)
def test_what_is_no_comparison_gets_one_sentence(data):
    with pytest.raises(KvvizError) as caught:
        reading.read(data)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_too_large_is_not_even_parsed(monkeypatch):
    monkeypatch.setattr("kvviz.store.files.reading.LARGEST", 100)
    with pytest.raises(KvvizError, match="larger than 100 bytes"):
        reading.read("[" * 101)


def test_unknown_fields_are_dropped(single):
    document = {**single.document, "__proto__": {"a": 1}, "evil": "<script>"}
    document["runs"] = [{**run, "evil": 1} for run in document["runs"]]
    assert reading.read(reading.to_json(single.records, document)).document == single.document


HOSTILE = (
    None, True, -1, 0, 0.5, 2**70, -(2**70), 1e308, "", "x" * 3000, "</script><script>", "\0", "\ud83d",
    "javascript:alert(1)", "__proto__", [], [[]], [None], {}, {"a": {}}, [1, "a"], [[1], [2, 3]], "NaN", [{}], {"t": 1},
)  # fmt: skip


def places(value, path=()):
    """Every path in a tree of JSON values."""
    if path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def mutated(whole, paths, draw):
    """The tree with one to three of its places replaced, removed, doubled or exchanged."""
    whole = json.loads(whole)
    for _ in range(draw.randint(1, 3)):
        path = draw.choice(paths)
        place = whole
        try:
            for key in path[:-1]:
                place = place[key]
            act = draw.randrange(5)
            if act == 0:
                del place[path[-1]]
            elif act == 1 and isinstance(place, list):
                place.insert(path[-1], place[path[-1]])
            elif act == 2 and isinstance(place, list):
                draw.shuffle(place)
            else:
                place[path[-1]] = draw.choice(HOSTILE)
        except (LookupError, TypeError):
            continue
    return whole


@pytest.mark.slow
def test_thousands_of_changed_files_give_an_answer_or_one_sentence(single, batch):
    draw = random.Random(11)
    answers = 0
    for made in (single, batch):
        whole = reading.to_json(made.records, made.document)
        paths = [path for path in places(json.loads(whole)) if len(path) < 7]
        for _ in range(200 if ORDINARY else 1500):
            answers += answered(json.dumps(mutated(whole, paths, draw)))
    assert answers, "some changes leave a file that fits"


def answered(text):
    try:
        found = reading.read(text)
    except KvvizError as error:
        assert len(str(error).splitlines()) == 1 and len(str(error)) < 300
        return False
    if found.document is not None:
        assert reading.read(reading.to_json(found.records, found.document)) == found
        tables.to_csv(found.document, found.records).encode()
        rendered(found.document, found.records).encode()
        if random.random() < 0.1:  # slow
            _figure(found.document)
    return True


@pytest.mark.slow
@draws(60)
@given(data=st.data())
def test_broken_bytes_give_an_answer_or_one_sentence(single, data):
    whole = bytearray(reading.to_json(single.records, single.document).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    answered(bytes(whole))


NAMES = st.sampled_from(["kvviz", "runs", "records", "version", "document", "t", "id"]) | st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@draws(60)
@given(value=VALUES)
def test_any_json_gives_an_answer_or_one_sentence(value):
    answered(json.dumps(value))
