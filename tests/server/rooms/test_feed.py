"""The room's socket: state on joining, changes to all, rights by the browser's name, and nothing from strangers."""

import json
from contextlib import ExitStack

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from kvviz.server.front_door import COOKIE
from kvviz.server.rooms import feed as roomfeed
from kvviz.server.rooms.feed import PER_SECOND, routes
from kvviz.server.rooms.rooms import LONGEST_MESSAGE, Rooms

TEACHER, OTHER = "t" * 22, "o" * 22
LIVE = {"t": "place", "place": {"page": "live", "query": {"comparison": "abc"}}}


@pytest.fixture
def client():
    rooms = Rooms()
    with TestClient(Starlette(routes=routes(rooms))) as client:
        client.rooms = rooms
        yield client


def connect(client, query, browser=None, **headers):
    cookie = {"cookie": f"{COOKIE}={browser}"} if browser else {}
    return client.websocket_connect(f"/kv/room?{query}", headers={**cookie, **headers})


def until(socket, name):
    """What the next message that tells this says."""
    while name not in (message := socket.receive_json()):
        pass
    return message[name]


def opened(client):
    """A teacher's socket, with a room of its own."""
    return connect(client, "want=open", TEACHER)


def test_a_room_is_opened_joined_followed_and_closed(client):
    with opened(client) as teacher:
        hello = teacher.receive_json()
        code = hello["code"]
        assert (hello["t"], hello["role"], hello["followers"], hello["yours"]) == ("welcome", "lead", 0, True)
        assert hello["link"] == f"http://testserver/?room={code}"
        assert hello["qr"].startswith("data:image/svg+xml")
        teacher.send_json(LIVE)
        with connect(client, f"code={code.lower()}") as one:
            said = one.receive_json()
            if said["place"] is None:  # it came before the teacher's word
                said["place"] = until(one, "place")
            assert (said["role"], said["yours"], said["place"]) == ("follow", False, LIVE["place"])
            assert until(teacher, "followers") == 1
            teacher.send_json({"t": "look", "comparison": "abc", "step": 5, "mode": "cached"})
            assert until(one, "look") == {"comparison": "abc", "step": 5, "mode": "cached"}
            with connect(client, f"code={code}") as two:
                assert two.receive_json()["look"] == {"comparison": "abc", "step": 5, "mode": "cached"}
                assert until(teacher, "followers") == 2
            assert until(teacher, "followers") == 1
            teacher.send_json({"t": "close"})
            assert "closed" in until(one, "message")
    with connect(client, f"code={code}") as late:
        assert "no room with this code" in late.receive_json()["message"]


def test_the_teacher_goes_and_comes_back_by_the_browsers_name(client):
    with ExitStack() as stay:
        with opened(client) as teacher:
            code = teacher.receive_json()["code"]
            one = stay.enter_context(connect(client, f"code={code}"))
            assert one.receive_json()["away"] is False
        assert until(one, "away") is True
        with connect(client, f"want=lead&code={code}", TEACHER) as teacher:
            assert teacher.receive_json()["role"] == "lead"
            assert until(one, "away") is False
            teacher.send_json(LIVE)
            assert until(one, "place") == LIVE["place"]


@pytest.mark.parametrize("browser", [OTHER, None, "t" * 21, "<script>"])
def test_another_browser_can_neither_lead_nor_close(client, browser):
    with opened(client) as teacher:
        code = teacher.receive_json()["code"]
        with connect(client, f"want=lead&code={code}", browser) as other:
            assert "only the browser that opened" in other.receive_json()["message"]
        with connect(client, f"code={code}", browser) as follower:
            follower.receive_json()
            for message in ({"t": "close"}, LIVE):
                follower.send_json(message)
                assert "only whoever leads" in until(follower, "message")
        assert client.rooms.find(code).place is None


def test_a_browser_without_a_name_opens_none(client):
    with connect(client, "want=open") as nobody:
        assert nobody.receive_json()["t"] == "none"
    assert not client.rooms._rooms


@pytest.mark.parametrize("query", ["", "code=", "code=%00", "code=K7M4QX", "want=rule&code=K7M4QX", "want=lead"])
def test_who_asks_for_no_room_is_told_so(client, query):
    with connect(client, query, TEACHER) as one:
        said = one.receive_json()
        assert said["t"] == "none"
        assert len(said["message"]) > 20
        with pytest.raises(WebSocketDisconnect):
            one.receive_json()


def test_malformed_messages_are_refused_and_change_nothing(client):
    with opened(client) as teacher:
        code = teacher.receive_json()["code"]
        bad = ["{", "[]", "null", '"close"', "9" * 5000, "[" * 5000, json.dumps({"t": "place", "place": 1})]
        for text in bad:
            teacher.send_text(text)
            assert teacher.receive_json()["t"] == "refused"
        teacher.send_json(LIVE)
        with connect(client, f"code={code}") as one:
            said = one.receive_json()
            assert (said["place"] or until(one, "place")) == LIVE["place"]


@pytest.mark.parametrize("said", ["x" * (LONGEST_MESSAGE + 1), "", b"\xff\x00"])
def test_who_says_too_much_or_nothing_is_shown_the_door(client, said):
    with opened(client) as teacher:
        code = teacher.receive_json()["code"]
        teacher.send_bytes(said) if isinstance(said, bytes) else teacher.send_text(said)
        with pytest.raises(WebSocketDisconnect):
            while True:
                teacher.receive_json()
    assert client.rooms.find(code).lead is None


def test_a_flood_is_cut_off(client):
    with opened(client) as teacher:
        teacher.receive_json()
        for _ in range(PER_SECOND + 1):
            teacher.send_json(LIVE)
        with pytest.raises(WebSocketDisconnect):
            while True:
                teacher.receive_json()


def test_the_link_is_the_browsers_own_and_an_inner_address_is_for_this_machine_alone(client, monkeypatch):
    monkeypatch.setattr(roomfeed, "reachable", lambda origin, port: (f"http://192.168.1.5:{port}", "inner"))
    at_home = {"origin": "http://127.0.0.1:8501", "host": "127.0.0.1:8501"}
    with connect(client, "want=open", TEACHER, **at_home) as far:
        assert far.receive_json()["link"].startswith("http://127.0.0.1:8501/?room=")
    near = TestClient(client.app, client=("127.0.0.1", 4000))
    with connect(near, "want=open", TEACHER, **at_home) as close:
        said = close.receive_json()
        assert (said["link"].split("/?")[0], said["hint"]) == ("http://192.168.1.5:80", "inner")
    from kvviz.base.settings import Settings

    monkeypatch.setattr(roomfeed, "settings", lambda: Settings(public=True))
    with connect(near, "want=open", TEACHER, **at_home) as public:
        assert public.receive_json()["hint"] == ""


def test_a_dragged_slider_reaches_a_follower_in_few_messages(client):
    with opened(client) as teacher:
        code = teacher.receive_json()["code"]
        with connect(client, f"code={code}") as one:
            one.receive_json()
            for step in range(1, PER_SECOND - 5):
                teacher.send_json({"t": "look", "comparison": "abc", "step": step, "mode": "cached"})
            messages = 1
            while until(one, "look")["step"] != step:
                messages += 1
            assert messages < step / 2


def test_a_pupil_answers_the_teacher_sees_it_and_reveals_it(client):
    with opened(client) as teacher:
        code = teacher.receive_json()["code"]
        with connect(client, f"code={code}", OTHER) as one:
            one.receive_json()
            one.send_json({"t": "answer", "question": "square", "round": "before", "answer": "100"})
            work = until(teacher, "work")
            assert work["answers"] == {"square before": [["100 pairs", 1, True]]}
            teacher.send_json({"t": "answer", "question": "square", "round": "before", "answer": "5"})
            teacher.send_json({"t": "reveal", "what": "square before", "shown": True})
            assert until(one, "work") == {**work, "revealed": ["square before"]}, "the teacher is no pupil"
            one.send_json({"t": "reveal", "what": "square before", "shown": False})
            assert "only whoever leads" in until(one, "message")
            one.send_json({"t": "answer", "question": "square", "round": "before", "answer": "many"})
            assert "no answer" in until(one, "message")


def test_a_class_runs_sends_its_curves_and_all_see_them(client):
    work = {"model": "mini-gpt2", "prompt": "Once", "prompt_tokens": None, "new_tokens": 3, "repeats": 1}
    with opened(client) as teacher:
        code = teacher.receive_json()["code"]
        with connect(client, f"code={code}", OTHER) as one, connect(client, f"code={code}") as two:
            one.receive_json(), two.receive_json()
            two.send_json({"t": "everyone", "work": work})
            assert "only whoever leads" in until(two, "message")
            two.send_json({"t": "curves"})
            assert "not asked" in until(two, "message")
            teacher.send_json({"t": "everyone", "work": {**work, "model": "gpt2"}})
            assert "comes with kvviz" in until(teacher, "message")
            teacher.send_json({"t": "everyone", "work": work})
            run = until(one, "run")
            assert run["order"]["spec"]["new_tokens"] == 3 and until(teacher, "run") == run
            row = {"uncached": [1, 2, 3], "cached": [1, 1, 1]}
            two.send_json({"t": "curves", "number": run["number"], **row, "cached": [1] * 4})
            assert "has 3 steps" in until(two, "message")
            one.send_json({"t": "curves", "number": run["number"], **row})
            assert until(teacher, "rows") == until(two, "rows") == [row]
            two.send_json({"t": "curves", "number": run["number"], **row})
            assert until(one, "mine") == 0 and until(two, "mine") == 1
            with connect(client, f"code={code}") as late:
                assert until(late, "rows") == [row, row]
            assert len(client.rooms.find(code).run.csv().splitlines()) == 1 + 2 * 3
            teacher.send_json({"t": "everyone", "work": None})
            assert until(two, "run") is None


def test_a_message_with_a_million_points_is_refused_with_a_sentence(client):
    with opened(client) as teacher:
        code = teacher.receive_json()["code"]
        with connect(client, f"code={code}", OTHER) as one:
            one.receive_json()
            one.send_json({"t": "curves", "number": "x", "uncached": [1] * 10**6, "cached": []})
            assert "at most 16,384 characters" in until(one, "message")
            with pytest.raises(WebSocketDisconnect):
                until(one, "nothing")


@pytest.mark.parametrize("table", ["answers", "curves"])
@pytest.mark.parametrize(("browser", "status"), [(TEACHER, 200), (OTHER, 403), (None, 403)])
def test_the_answers_and_curves_as_tables_are_for_the_teacher_alone(client, browser, status, table):
    with opened(client) as teacher:
        code = teacher.receive_json()["code"]
        room = client.rooms.find(code)
        room.work.hear("x", {"t": "answer", "question": "square", "round": "before", "answer": "100"})
        cookie = {"cookie": f"{COOKIE}={browser}"} if browser else {}
        found = client.get(f"/kv/room/{table}.csv?code={code}", headers=cookie)
        assert found.status_code == status
        assert ("100 pairs" in found.text) == (status == 200 and table == "answers")
    assert client.get(f"/kv/room/{table}.csv?code=K7M4QX").status_code == 404
