"""The ASGI app: `make run`, `python app.py` or `streamlit run app.py` serve it.

Its lifespan starts and ends the measuring process, its routes carry the live feed; the pages are Streamlit's.
"""

import asyncio
import logging
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import streamlit as st
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

import kvviz
from kvviz.base import logs
from kvviz.base.errors import KvvizError
from kvviz.base.settings import ray_address, settings
from kvviz.base.shutdown import finish_first, leave_quietly
from kvviz.device.cores import pin, share_of_cores
from kvviz.models.sources import BUNDLED, restrict
from kvviz.server.assets import routes as document_routes
from kvviz.server.feed import Feed, routes, running
from kvviz.server.front_door import FrontDoor, Rules
from kvviz.server.inbox import inbox
from kvviz.server.no_delay import send_without_delay
from kvviz.server.persister import Persister
from kvviz.server.rooms.feed import routes as room_routes
from kvviz.server.rooms.rooms import Rooms
from kvviz.server.scheduler import scheduler
from kvviz.server.script_slots import share_the_lock
from kvviz.server.staff import staff
from kvviz.ui.folders import ASSETS, ASSETS_URL, MAIN, MODELS_URL, SITE, SITE_URL
from kvviz.ui.frame.document import documents
from kvviz.ui.frame.imports import import_pages
from kvviz.ui.frame.no_file_watching import watch_no_files
from kvviz.ui.shared.session import is_for_this_machine, may_follow

if TYPE_CHECKING:
    from kvviz.server.cluster import Cluster

log = logging.getLogger("kvviz.server")
FEED = Feed(scheduler())
PERSISTER = Persister(scheduler())
try:
    logs.read_choice(os.environ.get("KVVIZ_LOG", ""))
    if settings().public:
        restrict(settings().hub_models)
except KvvizError as error:
    print(f"kvviz: {error}", file=sys.stderr)
    raise SystemExit(2) from None


def warn_if_open() -> None:
    """Warn once if everyone in the network is trusted: the server is not for this machine alone and not public."""
    if not (is_for_this_machine() or settings().public):
        logging.getLogger("kvviz").warning(
            "this server is open to its network and not set to public: whoever reaches it can have any folder of this "
            "machine read as a model. KVVIZ_PUBLIC=1 forbids that; docs/security.md says more"
        )


def rules() -> Rules:
    """Who is let in: the settings say it, and the address at which the server listens."""
    return Rules(settings(), is_for_this_machine(), lambda scope: may_follow(HTTPConnection(scope).cookies))


@asynccontextmanager
async def lifespan(_app: st.App):
    """Start and end what serves the pages: the workers have all cores but one, the server has that one."""
    logs.set_up("server")
    warn_if_open()
    measuring, serving = share_of_cores()
    pin(serving)
    share_the_lock()
    watch_no_files()
    send_without_delay()
    PERSISTER.start()
    inbox().start()
    if links := staff(settings().workers, measuring, serving):
        scheduler().employ(*links)
    cluster = join_cluster()
    async with running(scheduler(), FEED, measuring):
        finish_first(finish)
        await asyncio.to_thread(import_pages)
        logs.event(log, "server_started", version=kvviz.__version__, public=settings().public)
        yield {}
    if cluster is not None:
        cluster.close()
    inbox().close()
    PERSISTER.close()
    logs.event(log, "server_left")


def join_cluster() -> "Cluster | None":
    """Have the nodes of a Ray cluster measure too, if the settings name one."""
    if not ray_address():
        return None
    from kvviz.server.cluster import Cluster

    cluster = Cluster(scheduler(), ray_address())
    cluster.start()
    return cluster


def finish() -> None:
    """Stop the run after its current step and store it; the viewers' sockets are closed afterwards."""
    scheduler().close()
    PERSISTER.close()


app = st.App(
    MAIN,
    lifespan=lifespan,
    routes=[
        Mount(MODELS_URL, StaticFiles(directory=BUNDLED)),
        *([Mount(SITE_URL, StaticFiles(directory=SITE, html=True))] if SITE.is_dir() else []),
        *routes(FEED, str(ASSETS), ASSETS_URL),
        *room_routes(Rooms()),
        *document_routes(documents()),
    ],
    middleware=[Middleware(FrontDoor, rules)],
)

if __name__ == "__main__":
    leave_quietly()
    app.run(
        config={
            "server.port": int(os.environ.get("PORT", "8501")),
            "server.address": os.environ.get("HOST") or "127.0.0.1",
            "server.maxUploadSize": -(-settings().limits.upload_bytes // 2**20),  # MiB
            # a full garbage collection after every script run would delay every viewer's feed
            "runner.postScriptGC": False,
        }
    )
