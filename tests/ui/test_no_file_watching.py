"""No session watches files where the settings say so, one that returns after a lost network either."""

import pytest
from streamlit import config
from streamlit.runtime.app_session import AppSession

from kvviz.ui.frame.no_file_watching import watch_no_files


@pytest.fixture
def watcher_type(monkeypatch):
    monkeypatch.setattr(AppSession, "register_file_watchers", AppSession.register_file_watchers)  # put back afterwards
    before = config.get_option("server.fileWatcherType")
    yield lambda kind: config.set_option("server.fileWatcherType", kind)
    config.set_option("server.fileWatcherType", before)


def test_none_means_none(watcher_type):
    watcher_type("none")
    watch_no_files()
    AppSession.register_file_watchers(object())  # it would look for its watcher there


def test_who_wants_files_watched_has_them_watched(watcher_type):
    usual = AppSession.register_file_watchers
    watcher_type("poll")
    watch_no_files()
    assert AppSession.register_file_watchers is usual
