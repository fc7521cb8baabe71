"""The runtime: takes token ids, plans, masks, caches and decodes, returns token ids.

It knows no text, types or schemas.
"""

import sys

from schemax.base.process import share_processors

if "torch" not in sys.modules:
    # torch reads the environment once, on import.
    share_processors()
