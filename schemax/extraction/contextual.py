"""Contextual calibration: runs documents without content through the engine, once per schema."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

from schemax.compiler import CompiledSchema
from schemax.compiler.content_free import calibrated, content_free_prompts
from schemax.runtime.engine.decode import Windows, outputs
from schemax.runtime.engine.shared import SharedEngine
from schemax.runtime.engine.stream import Filled
from schemax.tokens import SlotOutput

_known: WeakKeyDictionary[SharedEngine, WeakKeyDictionary[CompiledSchema, CompiledSchema]] = (
    WeakKeyDictionary()
)


def contextually_calibrated(engine: SharedEngine, compiled: CompiledSchema) -> CompiledSchema:
    """The schema, calibrated for the engine's model if its decoding asks for that; cached.

    If the model cannot take the prompts, nothing is calibrated; every row then reports the error.
    """
    if not compiled.decoding.contextual_calibration:
        return compiled
    of_model = _known.setdefault(engine, WeakKeyDictionary())
    if compiled not in of_model:
        outputs = _written(engine, compiled)
        if outputs is None:  # perhaps for a while
            return compiled
        of_model[compiled] = calibrated(compiled, outputs) if outputs else compiled
    return of_model[compiled]


def _written(engine: SharedEngine, compiled: CompiledSchema) -> list[tuple[SlotOutput, ...]] | None:
    """(turns * documents, N) outputs of `content_free_prompts`, in order; None if the model or the
    memory cannot take them."""
    # Probabilities as the model has them.
    config = replace(
        compiled.decoding, contextual_calibration=False, max_retries=0, temperature=0.0
    )
    prompts = content_free_prompts(compiled)
    layout = Windows(engine.model, config)
    requests, refused = layout.requests((prompt, compiled.stop) for prompt in prompts)
    if refused:
        return None
    done: list[Filled] = []
    call = engine.call(config)
    try:
        call.give(requests)
        call.end()
        while not call.is_done:
            if found := call.take(len(requests)):
                done += found
            else:
                call.wait()
        call.take(1)  # raises what the model raised
    finally:
        call.close()
    of_documents = dict(outputs(done))
    if any(output.problem is not None for output in of_documents.values()):
        return None
    return [of_documents[place].slots for place in range(len(of_documents))]
