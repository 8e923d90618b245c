"""The queue, the feed, the front door and the rooms. The server process never imports torch."""
