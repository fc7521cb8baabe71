"""Further checks of the doctor: slot boundaries of the tokenizer, threads, the processor."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from schemax.base.messages import counted
from schemax.base.process import usable_processors
from schemax.compiler import compile_schema
from schemax.compiler.prompt import render_chat
from schemax.compiler.tokenizer import TextCodec, as_codec
from schemax.evaluation.diagnosis.agreement import TEMPLATE, TEXTS, Probe
from schemax.evaluation.diagnosis.diagnosis import Check
from schemax.runtime.models.loading.precision import automatic_dtype, bfloat16_speedup, instructions

FORMATS = ("json", "yaml", "xml")


def well_suited_formats(tokenizer: Any) -> list[str]:
    """Returns the formats whose slots begin where the tokenizer would cut filled text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report has them
        compiled = [
            compile_schema(Probe, tokenizer, format=name, template=TEMPLATE) for name in FORMATS
        ]
    return [item.format.name for item in compiled if not item.odd_boundaries]


def tokenizer_checks(tokenizer: Any) -> Iterator[Check]:
    codec = as_codec(tokenizer)
    suited = well_suited_formats(tokenizer)
    odd = [name for name in FORMATS if name not in suited]
    yield Check(
        "slot boundaries",
        "where the tokenizer cuts filled text"
        if not odd
        else f"merged with values in {', '.join(odd)}; fine in {', '.join(suited) or 'none'}",
        ok=bool(suited),
    )
    yield _specials(tokenizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report has them
        check = _chat_template(codec)
    yield check


def _chat_template(codec: TextCodec) -> Check:
    """Returns where answers begin, which tells whether a thought is open there."""
    chat = render_chat(codec)
    text = f"found; answers begin behind {chat.suffix!r}"
    if codec.chat_template is None:
        text = "none: prompted as a base model"
    elif not chat.is_answer:
        text = f"found, but shows no answer: behind {chat.suffix!r} the model may think first"
    return Check("chat template", text)


def _specials(tokenizer: Any) -> Check:
    """Checks that the text of special tokens, in a document, stays text."""
    codec = as_codec(tokenizer)
    specials = [item for item in codec.special_tokens.values() if item]
    ids = {i for text in specials for i in codec.encode_markup(text)}
    read = set(codec.encode(" ".join([*specials, TEXTS[0]])))
    # A token that plain text may hold, too, is no control token.
    plain = set(codec.encode(" ".join(TEXTS)))
    leaked = {i for i in ids & read if not codec.token_bytes[i] and i not in plain}
    return Check(
        "special tokens in text",
        f"{len(specials)} tried, {'read as text' if not leaked else 'some are read as control'}",
        ok=not leaked,
    )


def thread_check() -> Check:
    """Returns the number of torch's threads, with a remedy if the processors are overloaded."""
    threads, usable = torch.get_num_threads(), usable_processors()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    text = f"{threads} on {counted(usable, 'processor')}, load {load:.1f}"
    if threads > usable:
        text += f"; set OMP_NUM_THREADS={usable}, or passes take many times as long"
    elif threads > 1 and load + threads > usable + 1:
        free = max(1, min(threads - 1, usable - round(load)))
        text += f"; others are busy: OMP_NUM_THREADS={free} may be faster (docs/performance.md)"
    return Check("threads", text)


def processor_checks(trained: str | None) -> Iterator[Check]:
    """Yields the processor's instructions and speed in bfloat16, and the dtype of "auto".

    trained: the dtype in the model's schemax.json.
    """
    had = instructions()
    facts = [
        ", ".join(name for name, there in had.items() if there),
        ", ".join(f"no {name}" for name, there in had.items() if not there),
        f"products in bfloat16 take {1 / bfloat16_speedup():.2g} times as long as in float32",
    ]
    if limit := os.environ.get("ONEDNN_MAX_CPU_ISA"):
        facts.append(f"held to ONEDNN_MAX_CPU_ISA={limit}")
    yield Check("processor", "; ".join(filter(None, facts)))
    dtype, why = automatic_dtype(trained)
    yield Check("dtype auto", f"{str(dtype).removeprefix('torch.')}: {why}")
