"""Where kvviz keeps what lasts."""

import os
import subprocess
import sys

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.paths import home
from kvviz.store.db.store import Store


def test_the_folder_is_made_where_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path / "a" / "b"))
    assert home() == tmp_path / "a" / "b" and home().is_dir()
    store = Store()
    assert store.path == home() / "kvviz.sqlite" and store.path.is_file()
    store.close()


def test_a_path_may_be_relative_or_a_users(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("here", "~/here"):
        monkeypatch.setenv("KVVIZ_HOME", given)
        assert home() == tmp_path / "here"
    monkeypatch.setenv("KVVIZ_HOME", "~nobody-of-this-name/x")
    with pytest.raises(KvvizError, match="no such user"):
        home()


@pytest.mark.worker
def test_else_it_is_the_systems_folder_for_a_users_data(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "KVVIZ_HOME": ""}
    code = "from kvviz.base.paths import home; print(home())"
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.strip().startswith(str(tmp_path)) and out.stdout.strip().endswith("kvviz")


@pytest.mark.parametrize("place", ["/proc/kvviz", "/dev/null/kvviz"])
def test_a_folder_that_can_not_be_gets_a_sentence(monkeypatch, place):
    monkeypatch.setenv("KVVIZ_HOME", place)
    with pytest.raises(KvvizError, match="set KVVIZ_HOME"):
        home()
