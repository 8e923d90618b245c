"""The serving page."""
