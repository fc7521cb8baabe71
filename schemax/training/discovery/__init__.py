"""Discovery: declares the attributes of a category from samples of its documents.

samples -> names (listed by a model, and in lines `name: value`) -> the values of the names in the
samples -> types -> a JSON Schema document, and its coverage of the samples.
"""

from schemax.training.discovery.discover import Discovery, discover, discovered

__all__ = ["Discovery", "discover", "discovered"]
