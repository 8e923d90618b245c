"""Rooms: a leader's page is followed by every browser in the room.

A room lives in the browser's tab (`ui/assets/room/`): one object, whatever Streamlit mounts, that reads the address
Streamlit has written and asks the script for another page by a trigger. So a page needs to know nothing of rooms; it
only has to take over an address that it did not write. An address that changes after the follower touched the page is
the follower's own; without a touch it is the page putting its address in order. Each seat is told the difference
between what is and what it knows, so a slow follower gets the newest state and no queue can overflow. A room survives a
restart without being stored: its leader's browser opens it again under the same code, and followers recognise it by a
mark that only that browser can produce.
"""
