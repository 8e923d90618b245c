"""Requests at one rate of arrival after another, until the queue grows without bound: throughput against latency."""
