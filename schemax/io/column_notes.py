"""What becomes of the columns of an input that nobody has named."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from schemax.documents import Shown
from schemax.io.columns import Schemas
from schemax.messages import clipped, some_of

logger = logging.getLogger(__name__)


def column_notes(there: Iterable[str], shown: Shown, schemas: Schemas) -> Iterator[str]:
    """Columns that the model is shown because none is named; and categories that select nothing.

    there: the columns of the input, as far as they are known.
    """
    names = list(there)
    if len(unnamed := shown.unnamed(names)) > 1:
        yield (
            f"the model is shown all of these columns: {some_of(unnamed)}; name those that it is "
            "to read with --text (text=)"
        )
    if shown.category in names and not isinstance(schemas, Mapping):
        is_shown = shown.category in (shown.text or ())
        yield (
            f"the column {clipped(repr(shown.category))} selects no schema, since there is one for "
            f"all rows{'' if is_shown else ', and the model is not shown it'}; name a schema for "
            "each category: Shoes=shoes,Tea=tea"
        )


def tell_of_columns(there: Iterable[str], shown: Shown, schemas: Schemas) -> None:
    """Logs the notes, each once in a process."""
    for note in column_notes(there, shown, schemas):
        _tell(note)


@lru_cache(maxsize=256)
def _tell(note: str) -> None:
    logger.warning("%s", note)
