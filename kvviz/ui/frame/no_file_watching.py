"""Keeps Streamlit from watching files where it was told to watch none."""

from streamlit import config
from streamlit.runtime.app_session import AppSession


def watch_no_files() -> None:
    """For `server.fileWatcherType = "none"`: no session watches files, one that comes back after a lost network either.

    Streamlit 1.67 forgets the setting there and resolves the path of every imported module, a tenth of a second for
    each session on the thread that serves everybody's feed: a class that comes back at once would stop it for seconds.
    """
    if config.get_option("server.fileWatcherType") == "none":
        AppSession.register_file_watchers = lambda self: None  # type: ignore[method-assign]
