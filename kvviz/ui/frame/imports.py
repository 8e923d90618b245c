"""Imports what the pages are made of before the server answers, because the first visitor would wait for it."""

import gc
import importlib
import pkgutil

import kvviz.ui
from kvviz.ui.folders import MAIN


def import_pages() -> None:
    """Import the modules of all pages, and keep them out of the garbage collections.

    A full collection goes through all that they hold, for 0.1 s on an AMD EPYC, in the middle of somebody's click.
    """
    importlib.import_module("pandas")  # whole and first, as in `kvviz/ui/main.py`
    for module in pkgutil.walk_packages(kvviz.ui.__path__, "kvviz.ui."):
        if not module.name.endswith(f".{MAIN.stem}"):  # which is the script that draws a page
            importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
