"""Servers as engines: fills slots through OpenAI's protocol and its dialects."""
