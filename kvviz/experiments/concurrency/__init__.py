"""A server with an OpenAI interface under more and more requests at once."""
