"""A server without pages, for tests to kill: `python server.py PORT`. GET /submit?prompt=… queues work."""

import sys
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from kvviz.server.feed import Feed, routes, running
from kvviz.server.persister import Persister
from kvviz.server.scheduler import Scheduler
from kvviz.server.worker_process import WorkerLink
from tests.faults.conftest import asking, fake_command

scheduler = Scheduler(WorkerLink(fake_command))
feed = Feed(scheduler)


async def submit(request):
    return JSONResponse(scheduler.submit(asking(request.query_params["prompt"])))


@asynccontextmanager
async def lifespan(app):
    persister = Persister(scheduler)
    persister.start()
    async with running(scheduler, feed, []):
        yield
    persister.close()


app = Starlette(routes=[Route("/submit", submit), *routes(feed, "/tmp", "/kv/assets")], lifespan=lifespan)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
