"""`schemax serve`: serves an extractor over HTTP, for clients of OpenAI's protocol and its own.

`app.py` wires the routes, which share `service.py`.
"""
