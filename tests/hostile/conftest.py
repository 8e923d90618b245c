"""A process that is set to public, for one test."""

import pytest

from kvviz.base import settings as module
from kvviz.models import sources


@pytest.fixture
def public(monkeypatch):
    """`public("owner/name")` makes this process one of a server open to all, which may fetch these ids."""

    def make(*hub_models, **limits):
        lowered = module.read_settings("", public=True)
        made = module.replace(lowered, hub_models=hub_models, limits=module.replace(lowered.limits, **limits))
        for place in ("live.form", "memory.form", "shared.form"):
            monkeypatch.setattr(f"kvviz.ui.{place}.settings", lambda: made)
        sources.restrict(hub_models)
        return made

    yield make
    sources.restrict(None)
