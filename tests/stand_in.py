"""`schemax extract` with a stand-in for the model, where thousands of rows are needed.

Run as a script, it takes the arguments of the command line. The stand-in reads the first words of a
text, finishes rows out of order, and notes the id of every row in the file `computed` before it.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any

from judged_rows import judge_rows

from schemax.attributes import compile_attributes
from schemax.commands import options
from schemax.extraction.defaults import Defaults
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.extractor import Extractor
from schemax.formats import get_format
from schemax.io import checkpoint
from schemax.results import Extraction, SlotText, build, failed


class StandIn(Extractor):
    """Quacks like an Extractor. delay: seconds a row takes."""

    def __init__(self, delay: float = 0.0) -> None:
        self.defaults = Defaults(is_trained=True)
        config = SimpleNamespace(_commit_hash="0" * 40)
        self.model = SimpleNamespace(model=SimpleNamespace(config=config), dtype="torch.float32")
        self._delay = delay

    def stream(
        self,
        products: Iterable[Any],
        schema: Any,
        *,
        text: Any = None,
        id: str = "id",
        category: str | None = None,
        format: Any = None,
        html: Any = "strip",
        **_: Any,
    ) -> Iterator[Extraction[Any]]:
        documents = read_documents(products, RecordFields.of(text, id, category, html))
        return self._stream(documents, schema, get_format(format or "json"))

    def _stream(self, documents: Iterator[Any], schema: Any, format: Any) -> Iterator[Any]:
        """Texts with the word "hard" are read in YAML alone."""
        schemas = schema if isinstance(schema, Mapping) else None
        shuffled = random.Random(1)
        while window := list(islice(documents, 64)):
            shuffled.shuffle(window)
            for document in window:
                if self._delay:
                    time.sleep(self._delay)
                note(document.id)
                if document.text is None:
                    yield failed(document.index, document.id, document.problem)
                    continue
                if schemas is not None and (schema := schemas.get(document.category)) is None:
                    reason = f"no schema for category {document.category!r}"
                    yield failed(document.index, document.id, reason)
                    continue
                if "hard" in document.text and type(format).__name__ != "YamlFormat":
                    yield failed(document.index, document.id, "too hard")
                    continue
                attributes = compile_attributes(schema)
                words = document.text.split()
                slots = [
                    SlotText(format.escape(words[n % len(words)]), "stop", 2, complete=True)
                    for n in range(len(attributes))
                ]
                yield build(
                    schema,
                    attributes,
                    slots,
                    format,
                    index=document.index,
                    document_id=document.id,
                    steps=3,
                    texts=document.texts,
                )


def note(id: str | None) -> None:
    with open("computed", "a", encoding="utf-8", errors="replace") as handle:
        handle.write(f"{id}\n")


def use(delay: float = 0.0) -> None:
    """Puts the stand-in in place of every model; $PART_ROWS says how many rows a part has."""
    judge_rows()
    checkpoint.PART_ROWS = int(os.environ.get("PART_ROWS", checkpoint.PART_ROWS))
    made = StandIn(delay)
    options.load_extractor = lambda *_, **__: made  # type: ignore[assignment, return-value]


def run(args: Sequence[str], delay: float) -> None:
    """The command line with the stand-in, in this process; raises SystemExit."""
    from schemax.commands.cli import main

    use(delay)
    sys.argv[1:] = args
    main()


if __name__ == "__main__":
    run(sys.argv[1:], float(os.environ.get("DELAY", "0")))
    sys.exit()
