"""Models from a Hub that a thread plays into a folder, and a server's models out of that folder."""

import hashlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from kvviz.base import settings
from kvviz.base.errors import KvvizError
from kvviz.base.settings import Settings
from kvviz.decoding.loading import load
from kvviz.models import pull
from kvviz.models import pulled_folder as pulled
from kvviz.models.sources import BUNDLED, find_source, stored_weights
from tests.cli.conftest import call
from tests.models.hub import COMMIT, Hub, ask, serving

ROOT = Path(__file__).resolve().parents[2]
MINI = {path.name: path.read_bytes() for path in (BUNDLED / "mini-gpt2").iterdir()}
OTHERS = {"pytorch_model.bin": b"pickle", "modeling_own.py": b"import os", "onnx/model.onnx": b"x", "README.md": b"#"}
WEIGHTS = MINI["model.safetensors"]
SHARDS = {"model-00001-of-00002.safetensors": WEIGHTS, "model-00002-of-00002.safetensors": b"second"}


def index(*names):
    return json.dumps({"weight_map": dict(zip("abc", names, strict=False))}).encode()


CONFIG = {"config.json": MINI["config.json"]}


REPOS = {
    "openai-community/gpt2": {**MINI, **OTHERS},
    "some/parts": {**CONFIG, **SHARDS, pull.INDEX: index(*SHARDS), "consolidated.safetensors": b"again"},
    "some/lacking": {**CONFIG, **SHARDS, pull.INDEX: index(*SHARDS, "model-00003-of-00002.safetensors")},
    "some/pickle": {**CONFIG, "pytorch_model.bin": b"pickle"},
    "some/empty": {"README.md": b"#"},
    "some/odd": {"config.json": b'{"model_type": "gpt2"}', "model.safetensors": WEIGHTS},
}
FAILS = Counter()  # how often a file is still to arrive broken
GETS = Counter()


class Repositories(Hub):
    """What a repository holds, and its files."""

    def answer(self):
        path = self.path.partition("?")[0].strip("/")
        if path.startswith("api/models/"):
            repo = path.removeprefix("api/models/").partition("/revision/")[0]
            if repo in REPOS:
                return self.send(json.dumps(described(repo)).encode())
            code, reason = (403, "GatedRepo") if repo == "some/gated" else (401, "RepoNotFound")
            return self.send(b"", code, **{"X-Error-Code": reason})
        repo, _, name = path.partition(f"/resolve/{COMMIT}/")
        body = REPOS[repo][name]
        if self.command == "GET":
            GETS[name] += 1
            if FAILS[name] > 0:
                FAILS[name] -= 1
                body = bytes(len(body))
        return self.send(body, ETag=f'"{hashlib.sha256(body).hexdigest()}"')


def described(repo):
    siblings = []
    for name, body in REPOS[repo].items():
        blob = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
        lfs = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 130}
        large = {"lfs": lfs} if name.endswith((".safetensors", ".bin")) else {}
        siblings.append({"rfilename": name, "size": len(body), "blobId": blob, **large})
    return {"id": repo, "sha": COMMIT, "siblings": siblings, "cardData": {"license": "mit"}, "tags": []}


@pytest.fixture(scope="module")
def hub():
    with serving(Repositories) as address:
        yield address


@pytest.fixture
def here(hub, tmp_path, monkeypatch):
    """This process asks the thread's Hub and keeps what it remembers in a home of its own."""
    ask(hub, monkeypatch)
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path / "home"))
    GETS.clear()
    FAILS.clear()
    return tmp_path / "models"


def had(model, folder):
    """Pull one model; gives it, and the bytes that were told of."""
    told = []
    order = pull.order(model, folder)
    missing = pull.check_room([order], folder)
    done = pull.carry_out(order, told.append)
    assert sum(told) == missing
    return done


@pytest.fixture
def served(monkeypatch):
    """`served(folder)`: this process is a server that was given the folder."""

    def serve(folder, **more):
        given = Settings(models=folder, **more)
        monkeypatch.setattr(pulled, "settings", lambda: given)

    yield serve
    pulled._by_id.cache_clear()


def test_what_a_decoder_needs_is_fetched_and_nothing_else(here):
    done = had("gpt2", here)
    there = {path.name for path in (here / "gpt2").iterdir()}
    assert there == {"kvviz.json", *(MINI.keys() - {"README.md", "card.json", "loss.svg"})}
    assert (done.repo, done.revision, done.licence) == ("openai-community/gpt2", COMMIT, "mit")
    told = json.loads((here / "gpt2" / "kvviz.json").read_text())
    sums = {file["name"]: (file["size"], file["sha256"]) for file in told["files"]}
    assert sums["model.safetensors"] == (len(WEIGHTS), hashlib.sha256(WEIGHTS).hexdigest())
    assert pulled.read_manifest(here / "gpt2") == done


def test_what_is_there_with_the_right_sum_is_not_fetched_again(here):
    had("gpt2", here)
    before = GETS.copy()
    had("gpt2", here)
    assert before == GETS
    (here / "gpt2" / "model.safetensors").write_bytes(bytes(len(WEIGHTS)))  # as long, but broken
    (here / "gpt2" / "config.json").unlink()
    had("gpt2", here)
    assert GETS - before == {"model.safetensors": 1, "config.json": 1}


def test_what_arrives_broken_is_said_and_comes_right_the_next_time(here):
    FAILS["model.safetensors"] = 1
    with pytest.raises(KvvizError, match=r"model\.safetensors of gpt2 did not arrive as it was sent"):
        had("gpt2", here)
    assert not (here / "gpt2" / "kvviz.json").exists() and (here / "gpt2" / "tokenizer.json").exists()
    had("gpt2", here).check_sums()
    assert GETS["tokenizer.json"] == 1


def test_weights_in_parts(here):
    done = had("some/parts", here)
    assert done.folder.name == "some--parts"
    assert {file.name for file in done.files} == {"config.json", pull.INDEX, *SHARDS}


def test_a_model_that_comes_with_kvviz_is_copied(here):
    done = had("mini-qwen3", here)
    assert (done.folder / "model.safetensors").read_bytes() == (BUNDLED / "mini-qwen3/model.safetensors").read_bytes()
    assert (done.repo, done.licence) == (None, "MIT") and not GETS


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("some/pickle", r"only in another format \(pytorch_model\.bin\); kvviz takes safetensors alone"),
        ("some/empty", "some/empty has no weights"),
        ("some/gated", "gated: ask for access"),
        ("some/nothing", "shows no model some/nothing"),
        ("some/odd", "some/odd can't be decoded here: .*num_hidden_layers"),
        ("some/lacking", "lacks model-00003-of-00002"),
        ("tiny-gpt2", "no Hugging Face id in the catalog"),
        ("t5-small", "encoder-decoder"),
        ("gtp2", "neither a catalog id nor a Hugging Face id"),
        ("../../etc", "neither a catalog id nor a Hugging Face id"),
        ("a/..", "shows no model|neither a catalog id"),
    ],
)
def test_what_can_not_be_had_is_one_sentence(here, model, says):
    with pytest.raises(KvvizError, match=says) as caught:
        had(model, here)
    assert "\n" not in str(caught.value)


def test_a_disk_that_is_too_full_is_found_before_anything_is_fetched(here, monkeypatch):
    usage = shutil.disk_usage(ROOT)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=pull.SPARE + 1000))
    with pytest.raises(KvvizError, match=r"MiB are still to be fetched and .* free: make room"):
        had("gpt2", here)
    assert not GETS and not (here / "gpt2").exists()


def test_without_a_network_it_says_so(here, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(KvvizError, match=r"can't be reached from here for openai-community/gpt2"):
        had("gpt2", here)


# --- a server that was given the folder ----------------------------------------------------------------------------


@pytest.mark.worker
def test_auto_takes_bundled_then_local_then_random(here, served):
    assert stored_weights("gpt2") == "random" and find_source("gpt2").weights == "random"
    had("gpt2", here)
    had("mini-gpt2", here)
    served(here, public=True)
    assert [stored_weights(m) for m in ("mini-gpt2", "gpt2", "gpt2-medium")] == ["bundled", "local", "random"]
    assert [find_source(m).weights for m in ("mini-gpt2", "gpt2", "gpt2-medium")] == ["bundled", "local", "random"]
    assert find_source("gpt2", "local").folder == here / "gpt2"
    assert find_source("gpt2", "random").folder is None
    assert find_source("mini-gpt2", "local").folder == here / "mini-gpt2"
    assert find_source("openai-community/gpt2").weights == "local", "under its Hugging Face id too"
    with pytest.raises(KvvizError, match="no weights of it"):
        find_source("gpt2-medium", "local")


@pytest.mark.worker
def test_an_id_that_is_in_no_catalog_is_found_in_the_folder(here, served):
    had("some/parts", here)
    served(here)
    source = find_source("some/parts")
    assert (source.model, source.title, source.weights) == ("some/parts", "parts", "local")
    assert source.origin == "https://huggingface.co/some/parts"


@pytest.mark.worker
def test_the_weights_that_were_pulled_are_loaded(here, served):
    had("gpt2", here)
    served(here)
    loaded = load(find_source("gpt2"), dtype="float32", device="cpu", attn="sdpa")
    own = load(find_source("mini-gpt2"), dtype="float32", device="cpu", attn="sdpa")
    assert all((a == b).all() for a, b in zip(loaded.tensors, own.tensors, strict=True))
    assert loaded.codec.encode("Once upon a time") == own.codec.encode("Once upon a time")


@pytest.mark.worker
def test_a_file_that_was_broken_is_named(here, served):
    had("gpt2", here)
    served(here)
    weights = here / "gpt2" / "model.safetensors"
    weights.write_bytes(WEIGHTS[:-1] + b"?")
    with pytest.raises(KvvizError, match=r"model\.safetensors of gpt2 is not what was pulled .* pull the model again"):
        load(find_source("gpt2"), dtype="float32", device="cpu", attn="sdpa")
    weights.write_bytes(WEIGHTS[:1000])
    with pytest.raises(KvvizError, match=r"model\.safetensors of gpt2 has 1,000 bytes and had 2,") as caught:
        find_source("gpt2")
    assert str(here) not in str(caught.value), "where the server keeps its models is its own affair"
    weights.unlink()
    with pytest.raises(KvvizError, match=r"model\.safetensors of gpt2 is not in the folder of models"):
        find_source("gpt2")
    assert find_source("gpt2", "random").weights == "random"


def test_a_sum_is_worked_out_once_as_long_as_size_and_time_stay(here, monkeypatch):
    done = had("gpt2", here)
    looked = []
    monkeypatch.setattr(pulled, "sha256", lambda path: looked.append(path.name) or pull.sha256(path))
    done.check_sums()
    assert len(looked) == len(done.files)
    done.check_sums()
    assert len(looked) == len(done.files)
    os.utime(here / "gpt2" / "model.safetensors", ns=(1, 1))
    done.check_sums()
    assert looked[len(done.files) :] == ["model.safetensors"]


@pytest.mark.worker
@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"kvviz": 2}', '{"kvviz": 1, "model": "gpt2", "repo": null, "revision": null, "licence": null, '
     '"files": [{"name": "../../x", "size": 1, "sha256": "' + "0" * 64 + '"}]}'],
)  # fmt: skip
def test_a_manifest_that_is_none_counts_as_no_model(tmp_path, served, text):
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "kvviz.json").write_text(text)
    served(tmp_path)
    with pytest.raises(KvvizError, match=r"gpt2 in the folder of models has no kvviz\.json"):
        pulled.read_manifest(tmp_path / "gpt2")
    assert stored_weights("gpt2") == "random"


def test_the_folder_is_named_by_the_environment_or_the_file(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    (tmp_path / "kvviz.toml").write_text('models = "models"')
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path))
    assert settings.settings.__wrapped__().models == tmp_path / "models", "beside the file"
    monkeypatch.setenv("KVVIZ_MODELS", str(tmp_path))
    assert settings.settings.__wrapped__().models == tmp_path
    monkeypatch.setenv("KVVIZ_MODELS", str(tmp_path / "gone"))
    with pytest.raises(KvvizError, match=r"KVVIZ_MODELS is .*gone, and there is no such folder"):
        settings.settings.__wrapped__()
    with pytest.raises(KvvizError, match="models is 3"):
        settings.read_settings("models = 3", public=False)


# --- the command line ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_from_the_hub_to_a_run_on_a_machine_without_a_network(here, served, monkeypatch):
    done = call("pull", "gpt2", "mini-gpt2", "-o", str(here))
    assert "openai-community/gpt2 at 01234567, licence mit" in done.out and f"KVVIZ_MODELS={here}" in done.out
    served(here)
    monkeypatch.setattr("kvviz.cli.measure_here.settle", lambda: None)
    document = call("run", "--model", "gpt2", "--new-tokens", "2", "--repeats", "1", "--prompt", "x").document
    assert document["weights"] == "local" and document["identical"]


@pytest.mark.slow
@pytest.mark.worker
def test_the_list_of_models_says_which_have_weights(here, served, capsys):
    from kvviz.cli.models import models
    from kvviz.ui.live.form import _label

    had("gpt2", here)
    served(here)
    models(as_json=True)
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)["models"]}
    assert [rows[m]["weights"] for m in ("mini-gpt2", "gpt2", "gpt2-xl")] == ["bundled", "local", "random"]
    assert ["trained" in _label(m) for m in ("gpt2", "gpt2-xl")] == [True, False]
    had("some/parts", here)
    models(as_json=True)
    (row,) = [row for row in json.loads(capsys.readouterr().out)["models"] if row["id"] == "some/parts"]
    assert (row["weights"], row["layers"], row["family"]) == ("local", 4, "gpt2")


@pytest.mark.slow
@pytest.mark.worker
def test_the_live_page_offers_what_was_pulled(here, served, scheduler_without_worker):
    from streamlit.testing.v1 import AppTest

    had("some/parts", here)
    served(here)
    page = AppTest.from_file(str(ROOT / "kvviz/ui/main.py"), default_timeout=60).run()
    page = page.switch_page(str(ROOT / "pages/live.py")).run()
    page.selectbox(key="model").select("some/parts").run()
    page.button(key="run").click().run()
    (work,) = scheduler_without_worker.jobs()
    assert (work.spec.model, find_source(work.spec.model, work.spec.weights).weights) == ("some/parts", "local")
