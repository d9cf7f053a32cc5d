"""A model behind addresses of HTTP: completions, chat, responses and messages, over one neutral request."""
