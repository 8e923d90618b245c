"""Puts the checkout on the import path: `python bench/NAME.py` starts with the folder `bench` there."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
