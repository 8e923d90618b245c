"""Which addresses may be asked, and that the checked number is the one that is connected to."""

import socket
from contextlib import contextmanager

import pytest

from kvviz.base.errors import KvvizError
from kvviz.base.records import Sampling
from kvviz.base.settings import Settings
from kvviz.decoding.endpoint import address
from kvviz.decoding.endpoint.address import KEY, base_url, find_place
from kvviz.decoding.endpoint.server import Server
from tests.openai_server import serving


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1"),
        ("https://LLM.example.org/", "https://llm.example.org/v1"),
        ("http://[::1]:1/api/v2/", "http://[::1]:1/api/v2"),
    ],
)
def test_the_base_of_an_interface(url, base):
    assert base_url(url) == base


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "localhost:8000",
            "file:///etc/passwd",
            "ftp://x",
            "http://",
            "http://a b",
            "http://x:99999",
            "http://x\n",
        ),
        *(
            "http://sk-secret@x",
            "http://me:sk-secret@x",
            "http://x?key=sk-secret",
            "http://x#sk-secret",
            7,
            "http://[x",
        ),
    ],
)
def test_no_address_and_none_with_a_key(url):
    with pytest.raises(KvvizError) as error:
        base_url(url)
    assert str(error.value).startswith("the address of an endpoint") and "secret" not in str(error.value)


@pytest.fixture
def named(monkeypatch):
    """`named("10.0.0.1", …)`: every name stands for these, one look-up after another; all of them would answer."""
    asked = []

    def named(*numbers):
        def look_up(host, port, **kind):
            asked.append(host)
            return [(None, None, 6, "", (numbers[min(len(asked), len(numbers)) - 1], port))]

        @contextmanager
        def connected(place, patience):
            yield

        monkeypatch.setattr(address.socket, "getaddrinfo", look_up)
        monkeypatch.setattr(address.socket, "create_connection", connected)
        return asked

    return named


PRIVATE = ("127.0.0.1", "10.1.2.3", "192.168.0.9", "172.16.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "::1")
CARRIED = ("fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "224.0.0.1", "::")


@pytest.mark.parametrize("number", PRIVATE + CARRIED)
def test_a_public_server_asks_nobody_on_its_own_network(named, monkeypatch, number):
    named(number)
    monkeypatch.setenv(KEY, "sk-secret")
    with pytest.raises(KvvizError, match="on its own machine or network, unless its settings list it"):
        find_place("http://llm.example.org", Settings(public=True))
    listed = Settings(public=True, endpoints=("http://llm.example.org/v1/",))
    assert find_place("http://llm.example.org", listed).key == "sk-secret"
    assert find_place("http://llm.example.org", Settings()).number == number, "one's own server asks anybody"


@pytest.mark.parametrize("public", [True, False])
def test_a_servers_own_key_goes_only_where_the_settings_say(named, monkeypatch, public):
    named("93.184.215.14")
    monkeypatch.setenv(KEY, "sk-secret")
    listed = Settings(public=public, endpoints=("https://llm.example.org/v1",))
    for url in ("https://llm.example.org:444", "https://llm.example.org/v2", "http://llm.example.org", "https://x.org"):
        assert find_place(url, listed).key is None
    assert find_place("https://LLM.example.org", listed).key == "sk-secret"


def test_a_visitors_key_goes_to_the_server_that_the_visitor_names(named, monkeypatch):
    named("93.184.215.14")
    monkeypatch.setenv(KEY, "sk-of-the-operator")
    for given in (Settings(public=True), Settings(endpoints=("https://llm.example.org/v1",))):
        place = find_place("https://llm.example.org", given, "sk-mine")
        assert place.key == "sk-mine" and "mine" not in repr(place)
    with pytest.raises(KvvizError, match="characters that no key has") as refused:
        find_place("https://llm.example.org", Settings(), "sk-mine\r\nHost: x")
    assert "mine" not in str(refused.value)


def test_a_public_server_is_not_asked_from_within_by_its_public_number(named, monkeypatch):
    named("93.184.215.14")
    assert address._is_here("127.0.0.1") and not address._is_here("93.184.215.14")
    monkeypatch.setattr(address, "_is_here", lambda number: True)
    with pytest.raises(KvvizError, match="its own machine"):
        find_place("https://llm.example.org", Settings(public=True))


def test_a_name_that_changes_its_meaning_gains_nothing(named, monkeypatch):
    """The first look-up gives the number that is checked; there is no second one that could give another."""
    connected = []
    asked = named("93.184.215.14", "127.0.0.1")
    place = find_place("http://rebinding.example.org:81", Settings(public=True))

    def refuse(place, *more, **kind):
        connected.append(place)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(KvvizError, match=r"nobody answers at rebinding\.example\.org:81"):
        Server(place, "m").ask("x", 2, Sampling())
    assert set(connected) == {("93.184.215.14", 81)} and asked == ["rebinding.example.org"]


def test_nobody_there():
    with serving() as server:
        pass
    with pytest.raises(KvvizError, match=r"nobody answers at 127\.0\.0\.1"):
        find_place(server.url, Settings())
    with pytest.raises(KvvizError, match="no machine is called"):
        find_place("http://no-such-machine.invalid", Settings())
