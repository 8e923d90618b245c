"""Measurements that are not tests: each prints JSON with the environment it was measured in."""
