"""Further checks of the doctor: slot boundaries of the tokenizer, memory, threads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from schemax.base.process import usable_processors
from schemax.compiler import compile_schema
from schemax.compiler.prompt import render_chat
from schemax.compiler.tokenizer import TextCodec, as_codec
from schemax.evaluation.diagnosis.agreement import TEMPLATE, TEXTS, Probe
from schemax.evaluation.diagnosis.diagnosis import Check
from schemax.runtime.engine.fork import ForkModel
from schemax.runtime.models.loading.precision import automatic_dtype, bfloat16_speedup, instructions
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.memory import free_bytes

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
    merged = sum(b'"' in data and (b"," in data or b"\n" in data) for data in codec.token_bytes)
    yield Check("merged delimiters", f"{merged} tokens hold a quote and what follows it; handled")
    yield _specials(tokenizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report has them
        checks = _chat_template(codec), _seams(tokenizer)
    yield from checks


def _chat_template(codec: TextCodec) -> Check:
    """Returns where answers begin, which tells whether a thought is open there."""
    chat = render_chat(codec)
    text = f"found; answers begin behind {chat.suffix!r}"
    if codec.chat_template is None:
        text = "none: prompted as a base model"
    elif not chat.is_answer:
        text = f"found, but shows no answer: behind {chat.suffix!r} the model may think first"
    return Check("chat template", text)


def _seams(tokenizer: Any) -> Check:
    """Compares the tokens of a prompt's pieces with those of its whole text."""
    compiled = compile_schema(Probe, tokenizer, template=TEMPLATE)
    prompt, ids = compiled.prompt, compiled.encode(TEXTS[:1])[0]
    pieces = [*ids.instruction, *ids.documents[0], *ids.opening, *ids.keys[0][0]]
    text = prompt.chat.prefix + prompt.instruction + TEXTS[0] + prompt.closing + prompt.chat.suffix
    text += compiled.format.opening() + compiled.key_texts[0][0]
    whole = compiled.codec.encode_markup(text)
    if not prompt.chat.prefix:
        whole = [*compiled.codec.prefix_ids, *whole]
    blocks = SequenceMatcher(None, pieces, whole, autojunk=False).get_matching_blocks()
    differing = len(pieces) - sum(block.size for block in blocks)
    return Check("prompt seams", f"{differing} of {len(pieces)} tokens are not the whole text's")


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


# A typical prompt, a product with its description, and its slots.
_TOKENS, _SLOTS, _SLOT_TOKENS = 512, 12, 10


@torch.inference_mode()
def memory_checks(model: DecoderModel | ForkModel) -> Iterator[Check]:
    fixed, per_token = _cache_bytes(model)
    if isinstance(model, ForkModel):
        document = _SLOTS * (fixed + per_token * (_TOKENS + _SLOT_TOKENS))
    else:
        document = per_token * (_TOKENS + _SLOTS * _SLOT_TOKENS)
    shape = f"{_TOKENS} tokens and {_SLOTS} slots"
    yield Check("memory per document", f"{document / 2**20:.2f} MiB for {shape}")
    # Activations and logits take a large part.
    fits = int(0.6 * free_bytes(model.device) / max(1, document))
    yield Check("documents that fit", f"{fits:,} at once")


def _cache_bytes(model: DecoderModel | ForkModel) -> tuple[int, int]:
    """Returns the bytes of a row that do not depend on its length, and the bytes per token."""
    sizes = []
    for length in (8, 16):
        ids = torch.ones(1, length, dtype=torch.int64, device=model.device)
        state = model.model(input_ids=ids, use_cache=True)
        name = model.architecture.state_name or "past_key_values"
        sizes.append(_size(state.get(name)))
    per_token = (sizes[1] - sizes[0]) // 8
    return max(0, sizes[0] - 8 * per_token), per_token


def _size(part: Any) -> int:
    """Returns the bytes of all tensors in a cache."""
    if hasattr(part, "layers"):
        part = [vars(layer) for layer in part.layers]
    return sum(leaf.nbytes for leaf in tree_leaves(part) if isinstance(leaf, torch.Tensor))


def thread_check() -> Check:
    """Returns the number of torch's threads, with a remedy if the processors are overloaded."""
    threads, usable = torch.get_num_threads(), usable_processors()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    text = f"{threads} on {usable} processors, load {load:.1f}"
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
        f"products in bfloat16 take {1 / bfloat16_speedup():.2g} of the time of float32",
    ]
    if limit := os.environ.get("ONEDNN_MAX_CPU_ISA"):
        facts.append(f"held to ONEDNN_MAX_CPU_ISA={limit}")
    yield Check("processor", "; ".join(filter(None, facts)))
    dtype, why = automatic_dtype(trained)
    yield Check("dtype auto", f"{str(dtype).removeprefix('torch.')}: {why}")
