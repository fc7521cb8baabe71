"""Scale-out on Ray Data: a pool of actors, each of which loads the model once.

Needs the extra `ray`. Ray places, feeds, watches and restarts the actors; what is here says what
they do.
"""

from schemax.ray.dataset import extract

__all__ = ["extract"]
