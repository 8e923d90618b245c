"""A server without pages, for tests to kill: `python server.py PORT`. GET /submit?prompt=… queues work."""

import sys
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from kvviz.server.feed import Feed, routes, running
from kvviz.server.persister import Keeper
from kvviz.server.scheduler import Hub
from tests.faults.conftest import asking, fake_command

hub = Hub(fake_command)
feed = Feed(hub)


async def submit(request):
    return JSONResponse(hub.submit(asking(request.query_params["prompt"])))


@asynccontextmanager
async def lifespan(app):
    keeper = Keeper(hub)
    keeper.start()
    async with running(hub, feed, []):
        yield
    keeper.close()


app = Starlette(routes=[Route("/submit", submit), *routes(feed, "/tmp", "/kv/assets")], lifespan=lifespan)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
