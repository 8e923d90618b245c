"""Model names and model files that try to be something else."""

import ast
import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict
from multiprocessing.connection import Pipe
from pathlib import Path

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.settings import Limits
from kvviz.experiments.comparison.spec import ComparisonSpec
from kvviz.experiments.sweep.spec import SweepSpec, find_sources
from kvviz.models import hub_config as hubconfig
from kvviz.models import sources
from kvviz.models.sources import find_source, looks_like_hub_id

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256}


@pytest.fixture
def folder(tmp_path):
    """A model folder, as a server's disk may hold one."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


STRANGE = (
    "../../etc",
    "../../etc/passwd",
    "/etc/passwd",
    "file:///etc/passwd",
    "http://169.254.169.254/latest/meta-data",
    "https://evil.example/model",
    "hf://owner/name",
    "\\\\evil\\share",
    "~root",
    "/dev/zero",
    "/proc/self/environ",
    "owner/name/../../etc",
    "owner/..",
    "owner/.hidden",
    "<script>alert(1)</script>",
    "x" * 100_000,
    "tiny-gpt2\0/etc/passwd",
    "\0",
    "\udc80",
)


@pytest.mark.parametrize("name", STRANGE, ids=lambda name: repr(name[:24]))
def test_a_strange_name_is_one_sentence(name):
    with pytest.raises(KvvizError) as refused:
        find_source(name)
    assert "\n" not in str(refused.value)
    assert "root:" not in str(refused.value), "nothing of a file's content is repeated"
    assert len(str(refused.value)) < 101_000


@pytest.mark.parametrize("name", ["owner/..", "../name", "a/../b", "owner/.git", "-x/..", "owner/na me", "ownеr/name"])
def test_no_path_is_taken_for_a_hugging_face_id(name):
    assert not looks_like_hub_id(name)


def test_a_file_that_never_ends_is_not_read_to_its_end(tmp_path):
    endless = tmp_path / "config.json"
    with endless.open("wb") as file:
        file.truncate(10**12)  # sparse: a terabyte of zeros that takes no disk
    with pytest.raises(KvvizError, match="larger than"):
        find_source(str(endless))


# --- a public server --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["auto", "local", "random", "hub", "bundled"])
def test_a_public_server_takes_no_folder_and_no_file(public, folder, weights):
    public()
    for name in (str(folder), str(folder / "config.json"), os.path.relpath(folder), f"file://{folder}"):
        with pytest.raises(KvvizError, match="open to all"):
            find_source(name, weights)


def test_a_public_server_does_not_say_what_is_on_its_disk(public, folder):
    public()
    sentences = set()
    for name in (str(folder), str(folder / "no")):
        with pytest.raises(KvvizError) as refused:
            find_source(name)
        sentences.add(str(refused.value).replace(repr(name[:80]), "NAME").partition("(near")[0])
    assert len(sentences) == 1


def test_a_public_server_fetches_only_what_is_listed(public):
    public("good/model")
    assert find_source("good/model").weights == "hub"
    for name, weights in (("other/model", "hub"), ("gpt2", "hub"), ("good/model/../x", "hub"), ("GOOD/model", "auto")):
        with pytest.raises(KvvizError, match="open to all"):
            find_source(name, weights)
    with pytest.raises(KvvizError, match=r"only good/model"):
        hubconfig.fetch_config("other/model")


def test_a_listed_id_is_never_a_folder_of_that_name(public, folder, monkeypatch):
    (folder / "good" / "model").mkdir(parents=True)
    (folder / "good" / "model" / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(folder)
    public("good/model")
    assert find_source("good/model").folder is None
    with pytest.raises(KvvizError, match="its own weights"):
        find_source("good/model", "local")


def test_the_queue_of_a_public_server_refuses_as_well(public, folder, scheduler_without_worker):
    public()
    with pytest.raises(KvvizError, match="open to all"):
        scheduler_without_worker.submit(ComparisonSpec(model=str(folder), prompt="x"))
    with pytest.raises(KvvizError, match="open to all"):
        scheduler_without_worker.submit(SweepSpec(models=("tiny-gpt2", str(folder))))
    with pytest.raises(KvvizError, match="open to all"):
        find_sources(SweepSpec(models=(str(folder),)))


@pytest.mark.slow
@pytest.mark.worker
def test_the_command_line_runs_as_its_user(folder):
    """KVVIZ_PUBLIC is about a server: who has a shell has the folder already."""
    command = [sys.executable, "-m", "kvviz", "calc", str(folder), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "KVVIZ_PUBLIC": "1"})
    assert json.loads(done.stdout)["layers"]


@pytest.mark.slow
@pytest.mark.worker
def test_the_worker_of_a_public_server_opens_no_folder_whoever_asks(folder):
    """Told over its pipe, behind every check of the server: it is the process that opens files."""
    ours, theirs = Pipe()
    command = [sys.executable, "-m", "kvviz.worker", str(theirs.fileno()), ""]
    worker = subprocess.Popen(
        command, cwd=ROOT, pass_fds=[theirs.fileno()], env={**os.environ, "KVVIZ_PUBLIC": "1"}, stderr=subprocess.PIPE
    )
    theirs.close()
    watchdog = threading.Timer(100, worker.kill)
    watchdog.start()
    try:
        assert b" hello\n" in ours.recv_bytes()
        spec = ComparisonSpec(model=str(folder), weights="random", prompt="x").to_dict()
        job = {"do": "comparison", "id": "one", "spec": spec, "limits": asdict(Limits())}
        ours.send_bytes(json.dumps(job).encode())
        while b"one failed\n" not in (answer := ours.recv_bytes()):
            assert b"one loading\n" in answer
        assert b"open to all" in answer
    finally:
        watchdog.cancel()
        ours.close()
        worker.wait(timeout=20)
        worker.stderr.close()


@pytest.mark.slow
@pytest.mark.worker
def test_the_server_restricts_itself_before_it_serves(folder):
    code = (
        "import runpy, sys; runpy.run_path('app.py'); from kvviz.models.sources import find_source;"
        "from kvviz.base.errors import KvvizError\n"
        "try: find_source(sys.argv[1])\nexcept KvvizError as error: print(error)"
    )
    env = {**os.environ, "KVVIZ_PUBLIC": "1"}
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, env=env)
    assert "open to all" in done.stdout, done.stderr


# --- code in model files ----------------------------------------------------------------------------------------


def test_weights_in_a_pickle_are_refused_by_name(folder):
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(KvvizError, match=r"no \.safetensors file but pytorch_model\.bin, a pickle"):
        find_source(str(folder), "local")


@pytest.mark.slow
def test_a_pickle_that_calls_itself_safetensors_is_not_run(folder):
    from kvviz.decoding.loaded_models import LoadedModels

    bomb = f"cos\nsystem\n(S'touch {folder}/pwned'\ntR.".encode()
    (folder / "model.safetensors").write_bytes(bomb)
    with pytest.raises(KvvizError, match="does not begin like a safetensors file"):
        LoadedModels().get(ComparisonSpec(model=str(folder), weights="local", prompt="x"))
    assert not (folder / "pwned").exists()


@pytest.mark.parametrize("nested", [False, True])
def test_code_beside_a_config_is_not_run(folder, nested):
    """`auto_map` names a module of the folder; an attention's name can name a repository with compiled code."""
    from kvviz.decoding.loading import count_params, hf_config

    (folder / "evil.py").write_text(f"open({str(folder / 'pwned')!r}, 'w')")
    harm = {
        "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
        "attn_implementation": "evil/kernel",
        "_attn_implementation": "evil/kernel",
        "quantization_config": {"quant_method": "bitsandbytes"},
    }
    config = {**CONFIG, **harm, "adapter": dict(harm)} if nested else {**CONFIG, **harm}
    (folder / "config.json").write_text(json.dumps(config))
    found = find_source(str(folder), "random")
    assert count_params(found.config) > 0
    assert "evil" not in str(hf_config(found.config).to_dict())
    assert not (folder / "pwned").exists()


def test_a_type_that_only_its_own_code_knows_is_read_by_its_fields_alone(folder):
    from kvviz.decoding.loading import hf_config

    (folder / "evil.py").write_text(f"open({str(folder / 'pwned')!r}, 'w')")
    config = {**CONFIG, "model_type": "stranger", "auto_map": {"AutoConfig": "evil.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    found = find_source(str(folder), "random")
    assert "brings its own code, which kvviz never runs" in found.spec.notes[0]
    with pytest.raises(KvvizError, match="stranger"):
        hf_config(found.config)
    assert not (folder / "pwned").exists()


BANNED = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "code", "codeop"}


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(path.name for path in (ROOT / "kvviz").iterdir() if path.is_dir()))
def test_nothing_in_kvviz_can_run_what_it_reads(package):
    """Nothing but the loader of the operator's own designs, which no public server has (KVVIZ_DESIGNS)."""
    paths = [path for path in (ROOT / "kvviz" / package).rglob("*.py") if path != ROOT / "kvviz/caches/own_designs.py"]
    trees = [ast.parse(path.read_text()) for path in paths]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    for node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.partition(".")[0] for name in names} & BANNED
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name, arguments = ast.unparse(call.func), {keyword.arg: keyword.value for keyword in call.keywords}
        assert name not in ("eval", "exec", "compile", "__import__", "torch.load", "os.system", "os.popen"), name
        for argument in ("trust_remote_code", "shell", "unsafe_allow_html", "allow_pickle"):
            assert argument not in arguments or ast.unparse(arguments[argument]) == "False", f"{name}({argument}=…)"
        if name.endswith(".from_pretrained") or (name.endswith(".from_config") and "_auto_class" in name):
            assert "trust_remote_code" in arguments, name
        if name == "AutoModelForCausalLM.from_pretrained":
            assert ast.unparse(arguments["use_safetensors"]) == "True"


def test_what_is_fetched_is_never_code_or_a_pickle():
    from fnmatch import fnmatch

    from kvviz.decoding.loading import _WANTED

    for name in ("modeling_evil.py", "pytorch_model.bin", "model.pt", "weights.pkl", "evil.so", "tokenizer.pickle"):
        assert not any(fnmatch(name, wanted) for wanted in _WANTED), name
    assert sources.BUNDLED.is_dir()
