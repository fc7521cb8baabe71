"""`schemax serve`: an extractor behind HTTP, for clients of OpenAI's protocol and for its own.

`app.py` wires the routes; `service.py` is what they share.
"""
