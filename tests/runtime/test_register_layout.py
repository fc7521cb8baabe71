"""Layouts that users register: the paper's own, built anew, and others of its kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import TITLES
from decoding import TEMPLATE, assert_right, run

from schemax import DecodingConfig, Extractor, compile_schema, register_layout
from schemax.compiler import TextCodec
from schemax.config import PRESETS, decoding_name, resolve_decoding
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.outputs import Progress, Watcher


def algorithm_2(key_lengths: Any, budgets: Any) -> Any:
    """Algorithm 2 of the paper, step by step: a key, then a gap as long as the value may get."""
    starts, position = [], 0
    for length, k_max in zip(key_lengths, budgets, strict=True):
        starts.append(position)
        position += length + k_max
    return np.array(starts)


def on_a_grid(key_lengths: Any, budgets: Any) -> Any:
    """Keys begin at multiples of 64, wherever the others end."""
    return np.arange(len(key_lengths)) * 64


register_layout("algorithm 2", algorithm_2)
register_layout("grid", on_a_grid)
register_layout("no gaps", lambda key_lengths, budgets: key_lengths.cumsum() - key_lengths)
register_layout("one key", lambda key_lengths, budgets: np.zeros(1, np.int64))


@pytest.mark.parametrize("documents", ["isolated", "stacked"])
def test_the_paper_s_own_layout_is_built(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any, documents: Any
) -> None:
    config = replace(PRESETS["paper"], documents=documents, documents_per_prompt=2)
    outputs = []
    for layout in ("gapped", "algorithm 2"):
        decoding = replace(config, layout=layout)
        compiled = compile_schema(small, codec, template=TEMPLATE, decoding=decoding)
        outputs.append(assert_right(decoder_model(), compiled, TITLES[:4]))
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("slots", ["independent", "causal"])
def test_other_skeletons_equal_the_oracle(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any, slots: Any
) -> None:
    decoding = DecodingConfig(layout="grid", slots=slots, k_max=12)
    compiled = compile_schema(small, codec, template=TEMPLATE, decoding=decoding)
    outputs = assert_right(decoder_model(), compiled, TITLES[:4])
    gapped = replace(compiled, decoding=replace(decoding, layout="gapped"))
    assert outputs != run(decoder_model(), gapped, TITLES[:4])


def test_passes_are_watched(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    """What each pass writes, with its likeliest tokens, put together, is what the slots hold."""
    extractor = Extractor(decoder_model().model, codec)
    seen: list[Progress] = []
    watcher = Watcher(seen.append, num_rivals=3)
    (item,) = extractor.extractions(
        TITLES[:1], small, watcher=watcher, decoding="isolated:layout=grid", template=TEMPLATE
    )
    assert [progress.number for progress in seen] == list(range(len(seen)))
    written: dict[int, tuple[int, ...]] = {}
    for step in (step for progress in seen for step in progress.steps):
        assert len(step.rivals) == 3
        before = written.setdefault(step.slot_index, ())
        assert step.start == len(before)
        written[step.slot_index] = (*before, *step.ids)
    done = {place: slot.ids for progress in seen for place, slot in progress.done.items()}
    assert written == done
    assert set(done) == set(range(len(item.fields)))


def test_names_are_those_of_other_layouts() -> None:
    config = resolve_decoding("isolated:layout=grid")
    assert decoding_name(config) == "isolated:layout=grid"
    with pytest.raises(ValueError, match="there is a layout 'grid' already"):
        register_layout("grid", on_a_grid)
    with pytest.raises(ValueError, match=r"layout must be one of .*'grid'.*, not 'gird'"):
        DecodingConfig(layout="gird")


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("no gaps", "the layout 'no gaps' begins key 1 at .*, and the key before it with its gap"),
        ("one key", "the layout 'one key' must give .* integers, one a key, not"),
    ],
)
def test_a_layout_without_room_is_refused(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    layout: str,
    message: str,
) -> None:
    decoding = DecodingConfig(layout=layout)
    with pytest.raises(ValueError, match=message):
        Extractor(decoder_model().model, codec).extract(TITLES[:1], small, decoding=decoding)
