"""The anatomy page."""
