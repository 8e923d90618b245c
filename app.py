"""The front door: the ASGI app. `make run`, `python app.py` or `streamlit run app.py` open it.

Its lifespan keeps the measuring process alive, its routes carry the live feed; the pages are Streamlit's.
"""

import logging
import os
import sys
from contextlib import asynccontextmanager

import streamlit as st
from starlette.middleware import Middleware

import kvviz
from kvviz import logs
from kvviz.errors import KvvizError
from kvviz.feed import Feed, routes, running
from kvviz.frontdoor import FrontDoor
from kvviz.hub import hub
from kvviz.keeping import Keeper
from kvviz.leaving import finish_first, leave_quietly
from kvviz.measure import pin, share_of_cores
from kvviz.settings import settings
from kvviz.ui import ASSETS, ASSETS_URL, MAIN

log = logging.getLogger("kvviz.server")
FEED = Feed(hub())
KEEPER = Keeper(hub())


@asynccontextmanager
async def lifespan(_app: st.App):
    """Measuring has all cores but one, the server has that one."""
    logs.set_up("server")
    measuring, serving = share_of_cores()
    pin(serving)
    KEEPER.start()
    async with running(hub(), FEED, measuring):
        finish_first(finish)
        logs.event(log, "server_started", version=kvviz.__version__, public=settings().public)
        yield {}
    KEEPER.close()
    logs.event(log, "server_left")


def finish() -> None:
    """Stop what runs after its step and write it down; the viewers' sockets are closed after this."""
    hub().close()
    KEEPER.close()


app = st.App(
    MAIN,
    lifespan=lifespan,
    routes=routes(FEED, str(ASSETS), ASSETS_URL, lambda: KEEPER.problem),
    middleware=[Middleware(FrontDoor)],
)

if __name__ == "__main__":
    try:
        settings()
        logs.read_choice(os.environ.get("KVVIZ_LOG", ""))
    except KvvizError as error:
        print(f"kvviz: {error}", file=sys.stderr)
        sys.exit(2)
    leave_quietly()
    app.run(
        config={
            "server.port": int(os.environ.get("PORT", "8501")),
            "server.address": os.environ.get("HOST", "127.0.0.1"),
            # a full collection after every script run would hold up every viewer's feed
            "runner.postScriptGC": False,
        }
    )
