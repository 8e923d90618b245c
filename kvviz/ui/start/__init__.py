"""The page at "/"."""
