"""A model's prefills and decode steps on the device's measured roofline."""
