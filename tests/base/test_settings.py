"""The one file of settings: defaults, what a public server lowers, and one sentence for what does not fit."""

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.settings import PUBLIC, Limits, Settings, read_settings, settings


def test_without_a_file_the_defaults_stand():
    assert read_settings("", public=False) == Settings()


def test_a_public_server_is_lower_in_every_limit():
    lowered = read_settings("", public=True)
    assert lowered.public
    assert lowered.limits == PUBLIC
    assert all(getattr(PUBLIC, name) < getattr(Limits(), name) for name in Limits.__dataclass_fields__)


def test_what_the_file_names_stands_in_public_too():
    found = read_settings('public = true\nhub_models = ["a/b"]\n[limits]\nnew_tokens = 99\n', public=False)
    assert (found.public, found.hub_models) == (True, ("a/b",))
    assert (found.limits.new_tokens, found.limits.batch) == (99, PUBLIC.batch)


def test_the_environment_makes_public_and_names_the_file(tmp_path, monkeypatch):
    (tmp_path / "own.toml").write_text("[limits]\nwaiting = 3\n")
    monkeypatch.setenv("KVVIZ_SETTINGS", str(tmp_path / "own.toml"))
    monkeypatch.setenv("KVVIZ_PUBLIC", "1")
    assert settings.__wrapped__() == read_settings("[limits]\nwaiting = 3\n", public=True)
    monkeypatch.setenv("KVVIZ_PUBLIC", "0")
    assert not settings.__wrapped__().public


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("public = ", "can't be read"),
        ("colour = 1", "no field colour"),
        ("[limits]\ntokens = 1", "no field tokens"),
        ("[limits]\nnew_tokens = 0", "whole number of at least 1"),
        ("[limits]\nnew_tokens = true", "whole number of at least 1"),
        ("[limits]\nmemory_share = 2", "at most 1"),
        ("public = 1", "true or false"),
        ("hub_models = [1]", "list of Hugging Face ids"),
        ("limits = 1", "a table"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(text, said):
    with pytest.raises(KvvizError, match=said):
        read_settings(text, public=False)


def test_a_file_that_is_named_but_not_there_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("KVVIZ_SETTINGS", str(tmp_path / "no.toml"))
    with pytest.raises(KvvizError, match=r"no\.toml"):
        settings.__wrapped__()


def test_a_public_server_runs_nobodys_code(tmp_path, monkeypatch):
    monkeypatch.setenv("KVVIZ_DESIGNS", str(tmp_path))
    assert not settings.__wrapped__().public
    monkeypatch.setenv("KVVIZ_PUBLIC", "1")
    with pytest.raises(KvvizError, match="KVVIZ_DESIGNS has code run, and this server is public"):
        settings.__wrapped__()
    monkeypatch.setenv("KVVIZ_DESIGNS", str(tmp_path / "nowhere"))
    with pytest.raises(KvvizError, match=r"no such folder; it is a folder with cache designs of your own"):
        settings.__wrapped__()
    with pytest.raises(KvvizError, match="no field designs"):  # only whoever starts the server names the folder
        read_settings('designs = "designs"', public=False)


def test_workers_are_devices_each_named_once(monkeypatch):
    assert read_settings('workers = ["cuda:0", "cpu"]', public=False).workers == ("cuda:0", "cpu")
    monkeypatch.setenv("KVVIZ_WORKERS", "cpu:0, cpu:1")
    assert settings.__wrapped__().workers == ("cpu:0", "cpu:1")
    for text in ("cpu,cpu", "all,cpu", "gpu0"):
        monkeypatch.setenv("KVVIZ_WORKERS", text)
        with pytest.raises(KvvizError, match="KVVIZ_WORKERS"):
            settings.__wrapped__()
