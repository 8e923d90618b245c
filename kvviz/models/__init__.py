"""Identify a model by id, folder or config.json, and read what each of its layers keeps. No module imports torch."""
