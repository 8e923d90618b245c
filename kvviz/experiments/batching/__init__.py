"""Requests that arrive one after another, decoded together by a real engine, under several scheduling policies."""
