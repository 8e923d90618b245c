"""A server with OpenAI's interface as one more way to decode: its address, its stream, what its engine tells.

Only `server.py` imports the `openai` client, and only a run of the mode `endpoint` imports that file.
"""
