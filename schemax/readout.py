"""What the runtime wrote for a document, read as the schema says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemax.compiler import CompiledSchema
from schemax.documents import Document
from schemax.results import Extraction, SlotText, build

if TYPE_CHECKING:
    from schemax.runtime.outputs import DocumentOutput


def read_out(
    document: Document, output: DocumentOutput, compiled: CompiledSchema
) -> Extraction[Any]:
    """An extraction of a document that was run: every slot's text, its value, the instance."""
    slots: list[SlotText | None] = []
    for slot in output.slots:
        raw, complete = compiled.decode_slot(slot.ids)
        slots.append(SlotText(raw, slot.finish_reason, len(slot.ids), complete))
    if compiled.decoding.layout == "autoregressive":
        slots = _parsed(slots[0], compiled)
    return build(
        compiled.schema,
        compiled.attributes,
        slots,
        compiled.format,
        index=document.index,
        document_id=document.id,
        steps=output.steps,
        texts=document.texts,
    )


def _parsed(whole: SlotText | None, compiled: CompiledSchema) -> list[SlotText | None]:
    """The fields of an output that the model wrote itself, parsed leniently.

    Of an output that was cut off, a field that is missing ran out of budget, and so did the one
    that was being written: it is not taken for complete.
    """
    assert whole is not None
    paths = [attribute.labels for attribute in compiled.attributes]
    found = compiled.format.parse(whole.raw, paths)
    cut = whole.finish_reason == "length" and not whole.complete
    truncated = SlotText("", "length", whole.tokens, complete=False)
    last = next((path for path in reversed(paths) if path in found), None)
    return [
        (truncated if cut else None)
        if path not in found or (cut and path == last)
        else SlotText(found[path], "stop", whole.tokens, complete=True)
        for path in paths
    ]
