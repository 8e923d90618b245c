"""The pages as Streamlit runs them, without a browser and without a worker."""

import pytest
from streamlit.testing.v1 import AppTest

from kvviz import keeping
from kvviz.runs import Store
from kvviz.ui import MAIN, PAGES


@pytest.fixture
def open_page(hub_without_worker):
    """`open_page("memory", tokens="64")` is that page with that in its address; `app.hub` has no worker."""

    def open_page(page, **link):
        app = AppTest.from_file(str(MAIN), default_timeout=60).run()
        for name, value in link.items():
            app.query_params[name] = value
        app.switch_page(str(PAGES / f"{page}.py")).run()
        assert not app.exception
        app.hub = hub_without_worker
        return app

    return open_page


@pytest.fixture
def store(tmp_path):
    """What is kept goes into a store of this test's own."""
    store = Store(tmp_path / "runs.sqlite")
    keeping.use(store)
    yield store
    keeping.use(None)
    store.close()


def said(app):
    """The page's words."""
    return " ".join(words.value for words in [*app.markdown, *app.caption])
