"""Servers as engines: what OpenAI's protocol and its dialects answer, as tokens of slots."""
