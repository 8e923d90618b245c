"""What surrounds every page: the room, and the sentences at its foot."""
