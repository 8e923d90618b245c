"""Rooms: who may lead, what a seat is told, codes that can be read off a wall, and how rooms end."""

import pytest

from kvviz.base.errors import KvvizError
from kvviz.server.rooms import rooms as module
from kvviz.server.rooms.rooms import (
    AWAY_S,
    CODE_ALPHABET,
    ROOMS_PER_BROWSER,
    Place,
    Rooms,
    Seat,
    read_code,
    read_place,
    read_shown_step,
)

TEACHER, OTHER = "t" * 22, "o" * 22
NO_WORK = {"answers": {}, "drawings": [], "revealed": []}
LIVE = {"t": "place", "place": {"page": "live", "query": {"comparison": "abc"}}}


def seat(browser=None):
    woken = []
    made = Seat(browser, lambda: woken.append(1))
    made.woken = woken
    return made


@pytest.fixture
def rooms():
    return Rooms()


@pytest.fixture
def led(rooms):
    """A room with its leader in it."""
    room, lead = rooms.open(TEACHER), seat(TEACHER)
    rooms.enter(room, lead, lead=True)
    return room, lead


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def follower(rooms, room, browser=None):
    one = seat(browser)
    rooms.enter(room, one)
    return one


def test_who_joins_is_told_everything_and_then_only_what_is_new(rooms, led):
    room, lead = led
    rooms.hear(room, lead, LIVE)
    rooms.hear(room, lead, {"t": "look", "comparison": "abc", "step": 7, "mode": "cached"})
    one = follower(rooms, room)
    assert room.news(one) == {
        "role": "follow",
        "followers": 1,
        "away": False,
        "place": {"page": "live", "query": {"comparison": "abc"}},
        "look": {"comparison": "abc", "step": 7, "mode": "cached"},
        "work": NO_WORK,
        "run": None,
    }
    assert room.news(one) == {}
    rooms.hear(room, lead, {"t": "look", "comparison": "abc", "step": None, "mode": "cached"})
    assert room.news(one) == {"look": {"comparison": "abc", "step": None, "mode": "cached"}}


def test_a_seat_that_lags_gets_the_newest_alone(rooms, led):
    room, lead = led
    one = follower(rooms, room)
    room.news(one)
    for step in range(1, 200):
        rooms.hear(room, lead, {"t": "look", "comparison": "abc", "step": step, "mode": "cached"})
    assert room.news(one) == {"look": {"comparison": "abc", "step": 199, "mode": "cached"}}


def test_everyone_is_woken_by_a_change_and_counted(rooms, led):
    room, lead = led
    one = follower(rooms, room)
    two = follower(rooms, room)
    room.news(lead), room.news(one)
    rooms.leave(room, two)
    assert room.news(lead) == {"followers": 1}
    assert room.news(one) == {"followers": 1}
    before = len(lead.woken), len(one.woken)
    rooms.hear(room, lead, LIVE)
    assert (len(lead.woken), len(one.woken)) == (before[0] + 1, before[1] + 1)


def test_only_the_browser_that_opened_a_room_leads_it(rooms, led):
    room, _ = led
    for browser in (OTHER, None):
        with pytest.raises(KvvizError, match="only the browser that opened"):
            rooms.enter(room, seat(browser), lead=True)
    assert not room.followers


def test_a_follower_can_neither_move_nor_close_a_room(rooms, led):
    room, lead = led
    rooms.hear(room, lead, LIVE)
    for one in (follower(rooms, room), follower(rooms, room, OTHER), follower(rooms, room, TEACHER), seat(TEACHER)):
        for message in ({"t": "place", "place": {"page": "memory", "query": {}}}, {"t": "close"}):
            with pytest.raises(KvvizError, match="only whoever leads"):
                rooms.hear(room, one, message)
    assert room.place == Place("live", {"comparison": "abc"})
    assert rooms.find(room.code) is room


def test_of_the_leaders_pages_the_one_that_asked_last_leads(rooms, led):
    room, first = led
    second = seat(TEACHER)
    rooms.enter(room, second, lead=True)
    assert room.news(first)["role"] == "follow"
    assert room.news(second) == {"role": "lead", "followers": 1, "work": NO_WORK, "run": None}
    with pytest.raises(KvvizError):
        rooms.hear(room, first, LIVE)
    rooms.leave(room, first)
    assert room.lead is second


def test_away_and_back_again(rooms, led):
    room, lead = led
    rooms.hear(room, lead, LIVE)
    one = follower(rooms, room)
    room.news(one)
    rooms.leave(room, lead)
    assert room.news(one) == {"away": True}
    assert room.place == Place("live", {"comparison": "abc"}), "followers keep what they have"
    rooms.enter(rooms.find(room.code), seat(TEACHER), lead=True)
    assert room.news(one) == {"away": False}


def test_closing_ends_it_for_everyone(rooms, led):
    room, lead = led
    one = follower(rooms, room)
    rooms.hear(room, lead, {"t": "close"})
    assert room.ended
    assert one.woken
    with pytest.raises(KvvizError, match="no room with this code"):
        rooms.find(room.code)


def test_a_room_without_its_leader_ends_after_hours_and_not_before(rooms, clock):
    room = rooms.open(TEACHER)
    lead = seat(TEACHER)
    rooms.enter(room, lead, lead=True)
    clock[0] += 10 * AWAY_S
    assert rooms.find(room.code) is room, "a lesson may last as long as it likes"
    rooms.leave(room, lead)
    clock[0] += AWAY_S - 1
    assert rooms.find(room.code) is room
    clock[0] += 2
    with pytest.raises(KvvizError):
        rooms.find(room.code)
    assert "away" in room.ended


def test_a_browser_has_few_rooms_and_loses_deserted_ones_first(rooms):
    opened = [rooms.open(TEACHER) for _ in range(ROOMS_PER_BROWSER)]
    for room in opened[1:]:
        follower(rooms, room)
    newest = rooms.open(TEACHER)
    assert opened[0].ended
    assert len(rooms._rooms) == ROOMS_PER_BROWSER
    follower(rooms, newest)
    with pytest.raises(KvvizError, match="leads 3 rooms already"):
        rooms.open(TEACHER)
    assert rooms.open(OTHER)


def test_rooms_and_seats_have_a_limit(rooms, monkeypatch):
    from kvviz.base.settings import Limits, Settings

    monkeypatch.setattr(module, "settings", lambda: Settings(limits=Limits(rooms=2, viewers=3)))
    room = rooms.open(TEACHER)
    rooms.open(OTHER)
    with pytest.raises(KvvizError, match="2 rooms are open"):
        rooms.open("x" * 22)
    for _ in range(3):
        follower(rooms, room)
    with pytest.raises(KvvizError, match="3 pages are in rooms"):
        follower(rooms, room)


def test_without_a_name_no_room_is_opened(rooms):
    with pytest.raises(KvvizError, match="keeps no cookie"):
        rooms.open(None)


def test_after_a_restart_the_leader_has_the_same_room_and_another_is_told_apart(rooms):
    before = rooms.open(TEACHER)
    anew = Rooms()
    again = anew.open(TEACHER, before.code)
    assert (again.code, again.mark) == (before.code, before.mark)
    assert anew.open(TEACHER, before.code) is again
    with pytest.raises(KvvizError, match="another room has this code"):
        anew.open(OTHER, before.code)
    assert Rooms().open(OTHER, before.code).mark != before.mark
    assert TEACHER not in before.mark


def test_codes_can_be_read_off_a_wall(rooms):
    assert not set("AEIOUL01BSZ") & set(CODE_ALPHABET)
    codes = {rooms.open(f"{i:022d}").code for i in range(50)}
    assert len(codes) == 50
    assert all(len(code) == 6 and not set(code) - set(CODE_ALPHABET) for code in codes)
    room = rooms.open(TEACHER)
    assert rooms.find(f" {room.code[:3].lower()} - {room.code[3:].lower()} ") is room
    assert read_code("KBS-ZQX") == "K852QX", "letters that look like digits are read as those"


@pytest.mark.parametrize("text", ["", "K7M", "K7M-4QXX", "K7M4Q0", "<script>", "K7M4Q\x00", "É7M4QX", "K" * 10_000])
def test_what_is_no_code_is_said_kindly(rooms, text):
    with pytest.raises(KvvizError, match="six letters and digits, such as K7M-4QX"):
        rooms.find(text)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "live",
        {},
        {"page": "live", "query": None},
        {"page": 1},
        {"page": "../live"},
        {"page": "https://evil.example"},
        {"page": "live", "query": {"room": "K7M4QX"}},
        {"page": "live", "query": {"embed": "true"}},
        {"page": "live", "query": {"<b>": "x"}},
        {"page": "live", "query": {"": "x"}},
        {"page": "live", "query": {"comparison": 7}},
        {"page": "live", "query": {"comparison": "a" * 8001}},
        {"page": "live", "query": {"comparison": "a\n"}},
        {"page": "live", "query": {"comparison": "\ud800"}},
        {"page": "live", "query": {}, "more": 1},
    ],
)
def test_a_place_is_the_address_of_a_page(data):
    with pytest.raises(KvvizError):
        read_place(data)


def test_places_are_read_whatever_the_page_keeps_in_its_address():
    assert read_place({"page": "compare", "query": {"runs": ""}}) == Place("compare", {"runs": ""})
    assert read_place({"page": "elsewhere"}) == Place("elsewhere", {})
    said = {"prompt": "Café <b>, with a space", "top_k": "7"}
    assert read_place({"page": "elsewhere", "query": said}) == Place("elsewhere", said), "text is only ever text"


def test_the_memory_pages_link_is_followed_whole():
    from kvviz.memory.calculator import Asked, from_params, pack, to_params

    asked = Asked(models=("gpt2", pack({"model_type": "gpt2", "n_layer": 3})), tokens=77, gpu="rtx-4090", beams=2)
    place = read_place({"page": "memory", "query": to_params(asked)})
    assert from_params(place.query) == (asked, [])


@pytest.mark.parametrize("step", [0, -1, 1.5, True, "3", 10**7, float("inf")])
def test_a_step_is_a_whole_number(step):
    with pytest.raises(KvvizError, match="whole number"):
        read_shown_step({"comparison": "abc", "step": step})


@pytest.mark.parametrize("comparison", [None, 3, "", "a b", "x" * 65])
def test_a_step_belongs_to_a_comparison(comparison):
    with pytest.raises(KvvizError, match="belongs to a comparison"):
        read_shown_step({"comparison": comparison, "step": 1})
    assert read_shown_step({"comparison": "a-_9", "step": None}) == {"comparison": "a-_9", "step": None, "mode": None}


@pytest.mark.parametrize("mode", [3, "", "No cache", "<b>", "x" * 40])
def test_a_mode_is_named_by_a_word(mode):
    with pytest.raises(KvvizError, match="named by a word"):
        read_shown_step({"comparison": "abc", "step": 1, "mode": mode})
    assert read_shown_step({"comparison": "abc", "step": 1, "mode": "cached"})["mode"] == "cached"


@pytest.mark.parametrize(
    "message",
    [None, [], "close", {}, {"t": "close", "code": "x"}, {"t": "place"}, {"t": "look"}, {**LIVE, "more": 1}, {"t": 3}],
)
def test_what_a_leader_says_is_checked(rooms, led, message):
    room, lead = led
    with pytest.raises(KvvizError):
        rooms.hear(room, lead, message)
    assert not room.ended
    assert room.place is None
