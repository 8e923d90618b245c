"""The command line: the same answers without a dashboard."""
