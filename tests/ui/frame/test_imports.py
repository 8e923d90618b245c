"""What the pages are made of is imported before the first visitor, and no collection of garbage goes through it."""

import subprocess
import sys

FREEZES = """
import gc
from kvviz.ui.frame.imports import import_pages
import_pages()
assert gc.isenabled()
print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_a_full_collection_goes_through_little_of_what_the_server_holds():
    told = subprocess.run([sys.executable, "-c", FREEZES], capture_output=True, text=True, check=True).stdout
    frozen, left = map(int, told.split())
    assert frozen > 50 * left
