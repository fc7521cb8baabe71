"""A declaration for documents of a category that nobody has declared yet.

samples of the documents -> names (a model's, and lines that say `name: value`) -> the values that
the documents have for them -> kinds -> a JSON Schema document, and what it finds in the samples.
"""

from schemax.discovery.discover import Discovery, discover, discovered

__all__ = ["Discovery", "discover", "discovered"]
