"""What surrounds every page: the room, signing in, the three sentences to say aloud."""
