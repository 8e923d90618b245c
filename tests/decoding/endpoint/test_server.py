"""A server's stream, and each way in which it can fail, as one sentence without the key."""

import json

import pytest

from kvviz.base.errors import KvvizError, Stopped
from kvviz.base.records import Sampling
from kvviz.base.settings import Settings
from kvviz.decoding.endpoint.address import find_place
from kvviz.decoding.endpoint.engines import engines
from kvviz.decoding.endpoint.server import Server
from tests.openai_server import TEXT, serving


def ask(does, model=None, new_tokens=len(TEXT), sampling=Sampling(), check_stop=lambda: None, key=None):
    server = Server(find_place(does.url, Settings(), key), model)
    try:
        return server, server.ask("Say:", new_tokens, sampling, check_stop)
    finally:
        server.close()


@pytest.mark.parametrize("chats", [False, True])
def test_pieces_are_stamped_as_they_arrive(chats):
    pieces = (TEXT[:10], "", TEXT[10:])
    with serving(pieces=pieces, chats=chats, pause=0.02) as does:
        server, answer = ask(does)
    assert answer.text == TEXT and len(answer.arrivals) == 2, "an empty piece brings no text"
    assert answer.arrivals[0] < answer.arrivals[1] and answer.arrivals[1] >= 0.06, "the server slept as long itself"
    assert (server.chats, answer.finish, answer.usage["completion"]) == (chats, "length", 3)


def test_what_is_asked_for():
    with serving(owner="vllm", paths={"/version": '{"version": "0.12.0"}'}) as does:
        server, _ = ask(does, sampling=Sampling(0.5, 7, 0.9, 3), new_tokens=50)
    (asked,) = does.asked
    wanted = {"model": "m", "prompt": "Say:", "max_tokens": 50, "temperature": 0.5, "top_k": 7, "top_p": 0.9, "seed": 3}
    assert asked.items() >= {**wanted, "ignore_eos": True, "skip_special_tokens": False, "stream": True}.items()
    assert (server.engine.name, server.version) == ("vllm", "0.12.0")


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ({"then": "cut"}, "broke off after 3 pieces of text: the stream was cut"),
        ({"then": "error"}, "reports an error: out of blocks"),
        ({"then": "garbage"}, "is not OpenAI's interface"),
        ({"status": 401}, "refuses the key: the page has a field for it"),
        ({"status": 400}, r"refuses the request \(400\): no: Bearer …$"),
        ({"status": 503}, r"refuses the request \(503\)"),
        ({"status": 307, "location": "http://127.0.0.1:1/v1/completions"}, "to another address, which is not followed"),
        ({"models": ()}, "lists no model: name one as its model"),
        ({"models": ("a", "b")}, "has 2 models, such as a, b"),
        ({"pieces": ("x",) * 300}, "does not end its answer after the 47 tokens"),
    ],
)
def test_each_failure_is_a_sentence(does, says):
    with serving(**{"pieces": ("a", "b", "c"), **does}) as server, pytest.raises(KvvizError, match=says) as error:
        ask(server, key="sk-secret")
    assert "secret" not in str(error.value) and "\n" not in str(error.value) and error.value.__cause__ is None


def test_slots_are_looked_at_while_it_answers():
    slots = '[{"id": 0, "n_ctx": 512, "is_processing": true, "next_token": {"n_decoded": 4}}]'
    with serving(owner="llamacpp", paths={"/slots": slots}) as does:
        _, answer = ask(does)
    ((at, figures), *_) = answer.polled
    assert at >= 0 and figures == {"slots": 1, "slot_tokens": 512, "running": 1, "decoded": 4}


def test_a_server_that_tells_no_name_is_known_by_its_routes():
    (known,) = (engine for engine in engines() if engine.routes)
    with serving(paths={"/openapi.json": json.dumps({"paths": dict.fromkeys(known.routes)})}) as does:
        server, _ = ask(does)
    assert (server.engine, server.version) == (known, None)


def test_an_address_without_the_interface():
    with serving() as does:
        place = find_place(f"{does.url}/elsewhere", Settings())
        with pytest.raises(KvvizError, match=r"no OpenAI interface at this address \(404\)"):
            Server(place, "m").ask("x", 3, Sampling())


def test_a_run_can_be_stopped_between_two_pieces():
    def stop():
        raise Stopped

    with serving() as does, pytest.raises(Stopped):
        ask(does, check_stop=stop)
