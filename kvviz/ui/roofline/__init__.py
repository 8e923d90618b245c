"""The roofline page."""
