"""Scale-out on Ray Data: a pool of actors, each of which loads the model once.

Needs the extra `ray`. Ray places, feeds, watches and restarts the actors; this package defines
their work.
"""

from schemax.io.ray.dataset import extract

__all__ = ["extract"]
