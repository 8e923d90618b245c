"""Rooms: a leader's page is followed by every browser in the room."""
