"""Token ids in, token ids out: planning, masks, cache and the decode loop.

Nothing here knows text, types or schemas.
"""

import sys

from schemax.processors import share_processors

if "torch" not in sys.modules:
    # It reads the environment once, when it is imported.
    share_processors()
