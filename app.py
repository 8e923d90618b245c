"""The front door: the ASGI app. `make run`, `python app.py` or `streamlit run app.py` open it.

Its lifespan keeps the measuring process alive, its routes carry the live feed; the pages are Streamlit's.
"""

import os
from contextlib import asynccontextmanager

import streamlit as st
from starlette.middleware import Middleware

from kvviz.feed import Feed, routes, running
from kvviz.frontdoor import FrontDoor
from kvviz.hub import hub
from kvviz.keeping import Keeper
from kvviz.measure import pin, share_of_cores
from kvviz.turns import share_the_lock
from kvviz.ui import ASSETS, ASSETS_URL, MAIN
from kvviz.ui.watching import watch_no_files

FEED = Feed(hub())


@asynccontextmanager
async def lifespan(_app: st.App):
    """Measuring has all cores but one, the server has that one."""
    measuring, serving = share_of_cores()
    pin(serving)
    share_the_lock()
    watch_no_files()
    keeper = Keeper(hub())
    keeper.start()
    async with running(hub(), FEED, measuring):
        yield {}
    keeper.close()


app = st.App(
    MAIN,
    lifespan=lifespan,
    routes=routes(FEED, str(ASSETS), ASSETS_URL),
    middleware=[Middleware(FrontDoor)],
)

if __name__ == "__main__":
    app.run(
        config={
            "server.port": int(os.environ.get("PORT", "8501")),
            "server.address": os.environ.get("HOST", "127.0.0.1"),
            # a full collection after every script run would hold up every viewer's feed
            "runner.postScriptGC": False,
        }
    )
