"""Token ids in, token ids out: planning, masks, cache and the decode loop.

Nothing here knows text, types or schemas.
"""
