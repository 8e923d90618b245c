"""Where the pages and the assets lie, and the URL that a browser has the assets from."""

import hashlib
from pathlib import Path

from kvviz.base.paths import PACKAGE, dashboard

HERE = Path(__file__).resolve().parent
MAIN = HERE / "main.py"
PAGES = dashboard() / "pages"
FIRST = "start"  # the page at "/"
ASSETS = HERE / "assets"
SITE = PACKAGE / "site"  # the documentation, where `make docs` has built it
SITE_URL = "/docs"


def _fingerprint(folder: Path) -> str:
    """Changes when a file does, so that no browser shows yesterday's script."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.*")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


ASSETS_URL = f"/kv/assets/{_fingerprint(ASSETS)}"
MODELS_URL = f"{ASSETS_URL}/models"  # the bundled models' files, for browsers that decode
