"""The link into a room: under an address that others can reach, and as a QR code that any theme can show."""

import re
import socket
import urllib.parse

from kvviz.server.front_door import is_loopback
from kvviz.server.rooms import feed
from kvviz.server.rooms.feed import network_address, qr, reachable


def test_an_address_that_others_can_use_stays():
    for origin in ("http://192.168.1.5:8501", "https://kv.example", "http://[fe80::1]", "http://localhost.example"):
        assert reachable(origin, 8501) == (origin, "")


def test_a_server_open_to_the_network_is_linked_by_its_address_there(monkeypatch):
    monkeypatch.setattr(feed, "network_address", lambda: "127.0.0.1")  # stands for one in the network
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        origin, words = reachable("http://localhost:9999", port)
    assert origin == f"http://127.0.0.1:{port}"
    assert "address in the network" in words


def test_a_server_for_this_machine_alone_says_how_to_open_it(monkeypatch):
    monkeypatch.setattr(feed, "network_address", lambda: "192.168.1.5")
    monkeypatch.setattr(feed, "answers", lambda address, port: False)
    origin, words = reachable("http://localhost:8501", 8501)
    assert origin == "http://localhost:8501"
    assert "HOST=0.0.0.0" in words
    assert "http://192.168.1.5:8501" in words


def test_a_machine_without_a_network_says_so(monkeypatch):
    monkeypatch.setattr(feed, "network_address", lambda: None)
    origin, words = reachable("http://localhost:8501", 8501)
    assert origin == "http://localhost:8501"
    assert "no address in a network" in words


def test_the_network_address_is_none_that_means_this_machine():
    found = network_address()
    assert found is None or not is_loopback(found)


def test_the_qr_code_is_dark_on_white_with_a_quiet_zone():
    drawn = urllib.parse.unquote(qr("http://192.168.1.5:8501/?room=K7M4QX")).replace("'", '"')
    assert drawn.startswith("data:image/svg+xml")
    assert "<script" not in drawn
    assert 'fill="#fff' in drawn
    assert 'stroke="#000' in drawn
    modules = re.search(r'viewBox="0 0 (\d+) (\d+)"', drawn)
    assert int(modules[1]) in [4 * version + 17 + 2 * 3 for version in range(1, 8)], "three modules of white around"
    assert qr("http://192.168.1.5:8501/?room=K7M4QY") != qr("http://192.168.1.5:8501/?room=K7M4QX")
