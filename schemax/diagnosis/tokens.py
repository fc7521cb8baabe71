"""What a tokenizer does at the seams between keys, values and delimiters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from schemax.compiler import compile_schema
from schemax.compiler.tokenizer import as_codec
from schemax.diagnosis.agreement import TEMPLATE, TEXTS, Probe
from schemax.diagnosis.report import Check

FORMATS = ("json", "yaml", "xml")


def well_suited_formats(tokenizer: Any) -> list[str]:
    """Formats whose slots begin where the tokenizer would cut filled text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said in the report
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
    chat = "found; thinking off" if codec.chat_template else "none: prompted as a base model"
    yield Check("chat template", chat)


def _specials(tokenizer: Any) -> Check:
    """Whether the text of special tokens, in a document, stays text."""
    codec = as_codec(tokenizer)
    specials = [item for item in codec.special_tokens.values() if item]
    ids = {i for text in specials for i in codec.encode_markup(text)}
    found = set(codec.encode(" ".join([*specials, TEXTS[0]])))
    # A token that plain text can hold as well is no control token.
    plain = set(codec.encode(" ".join(TEXTS)))
    leaked = {i for i in ids & found if not codec.token_bytes[i] and i not in plain}
    return Check(
        "special tokens in text",
        f"{len(specials)} tried, {'read as text' if not leaked else 'some are read as control'}",
        ok=not leaked,
    )
