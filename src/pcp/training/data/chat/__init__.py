"""Conversations as training data: messages, the template that makes text of them, and which tokens are answers."""
