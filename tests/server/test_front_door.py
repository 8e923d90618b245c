"""Each browser gets a name of its own, once, with the first page."""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from kvviz.server.front_door import COOKIE, FrontDoor, browser_of


def client():
    async def page(request):
        return HTMLResponse("<p>a page</p>")

    async def data(request):
        return JSONResponse({})

    async def unchanged(request):
        return Response(status_code=304)

    routes = [Route("/", page), Route("/data", data), Route("/unchanged", unchanged)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(FrontDoor)]))


def test_a_new_browser_gets_a_name_that_no_script_can_read():
    said = client().get("/").headers["set-cookie"]
    name = said.split(";")[0].removeprefix(f"{COOKIE}=")
    assert browser_of({COOKIE: name}) == name
    assert "HttpOnly" in said
    assert "SameSite=Lax" in said


def test_two_browsers_have_two_names_and_keep_them():
    one, other = client(), client()
    one.get("/"), other.get("/")
    assert one.cookies[COOKIE] != other.cookies[COOKIE]
    assert "set-cookie" not in one.get("/").headers


def test_only_pages_name_a_browser():
    assert "set-cookie" not in client().get("/data").headers


def test_a_browser_that_forgot_its_name_but_kept_the_page_gets_another():
    assert "set-cookie" in client().get("/unchanged", headers={"accept": "text/html,*/*"}).headers
    assert "set-cookie" not in client().get("/unchanged", headers={"accept": "*/*"}).headers, "a script's file"


def test_a_made_up_name_of_another_form_is_replaced():
    answer = client().get("/", headers={"cookie": f"{COOKIE}=<script>"})
    assert "set-cookie" in answer.headers
