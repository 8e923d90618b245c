"""The mistakes page."""
