"""Many requests in one memory, shared prompts, and a conversation."""
