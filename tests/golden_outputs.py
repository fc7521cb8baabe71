"""Outputs that are frozen in tests/golden: how they are made, written, read and compared.

    pytest tests/runtime/test_golden.py -m "" --write-golden

makes the files anew, and refuses documents that are a near tie, whose outputs change where weights
change by a millionth and a second thread computes. Do so where outputs are meant to change, and say
in the commit why they do. A change that nobody meant is a defect of the engine.

Token ids, texts, values, places in texts, errors and numbers of passes are compared exactly,
probabilities with a tolerance: processors round differently.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from completions_server import served
from conftest import tiny_model
from decoding import decoded, written_slot
from families import FAMILIES
from golden_cases import EXAMPLES, Case, Codes, Product
from golden_documents import documents

from schemax import Extractor, extract_files
from schemax.base.resources import resource_dir
from schemax.compiler import TextCodec, as_codec

FOLDER = Path(__file__).with_name("golden")
TOLERANCE = 2e-3
PROBABILITIES = frozenset(
    (
        *("logprobs", "null_logprob", "legal_logprobs", "alternatives"),
        *("confidence", "least_confidence", "probability", "null_probability"),
        *("legal_probability", "legal_at_start"),
    )
)
"""Names of what is a probability or the logarithm of one."""


class Extractors:
    """Extractors by the names of models; each is made once, in float32 on the CPU.

    are_moved: whether weights differ by a millionth, which only a near tie may notice.
    """

    def __init__(self, codec: TextCodec, are_moved: bool = False) -> None:
        self.codec, self.are_moved = codec, are_moved
        self.made: dict[str, Extractor] = {}
        self.open = ExitStack()

    def __getitem__(self, name: str) -> Extractor:
        if name not in self.made:
            self.made[name] = self.make(name)
        return self.made[name]

    def make(self, name: str) -> Extractor:
        if name == "embedded":
            folder = resource_dir("embedded")
            made = Extractor.from_pretrained(folder, device="cpu", dtype="float32")
            self.moved(made.model.model)
            return made
        if name == "chat":
            model, codec = self["embedded"].model.model, as_codec(str(resource_dir("embedded")))
            server = self.open.enter_context(served(model, codec, "chat"))
            return Extractor.from_server(server.url)
        if name in ("vllm", "text"):
            server = self.open.enter_context(served(self.random("qwen3"), self.codec, name))
            return Extractor.from_server(server.url, tokenizer=self.codec, concurrency=1)
        return Extractor(self.random(name), self.codec, eos_ids=self.codec.eos_ids)

    def random(self, name: str) -> Any:
        """Weights that no release of torch or transformers draws in another way."""
        size = self.codec.vocab_size
        model = FAMILIES[name].model(size) if name in FAMILIES else tiny_model(name, size)
        draw = np.random.RandomState(7)  # whose numbers numpy promises to keep
        with torch.no_grad():
            for key, weight in sorted(model.named_parameters()):
                if "norm" not in key and "A_log" not in key:
                    numbers = 0.4 * draw.standard_normal(tuple(weight.shape))
                    weight.copy_(torch.from_numpy(numbers))
        return self.moved(model)

    def moved(self, model: Any) -> Any:
        if self.are_moved:
            draw = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for weight in model.parameters():
                    weight.mul_(1 + 1e-6 * torch.randn(weight.shape, generator=draw))
        return model

    def close(self) -> None:
        self.open.close()


def outputs(case: Case, extractors: Extractors) -> list[dict[str, Any]]:
    """What is frozen of each document of a case, in order."""
    options: dict[str, Any] = {}
    if case.model != "chat":  # which keeps to one way
        # Texts of models that schemax did not train are bound by default, which hides their tokens.
        left: dict[str, Any] = {"constrain": "types", "contextual_calibration": False}
        unsaid = {name: value for name, value in left.items() if case.model != "embedded"}
        unsaid = {name: v for name, v in unsaid.items() if getattr(case.decoding, name) is None}
        decoding = replace(case.decoding, **unsaid)
        options = {"decoding": decoding, "format": case.format}
    options["examples"] = EXAMPLES if case.is_shown_examples else ()
    found = decoded(extractors[case.model], case.texts, case.schema, **options)
    return [
        plain({**item.to_row(details=True), "passes": item.steps, "slots": slots})
        for item, slots in ((item, [*map(written_slot, slots)]) for item, slots in found)
    ]


RECORDS = [
    {"id": f"r{place}", "kind": kind, "title": text[:40], "text": text[40:], "price": place}
    for place, (kind, text) in enumerate(zip("tototoxt", documents(8, 80), strict=True))
]


def file_rows(folder: Path, extractors: Extractors) -> dict[str, Any]:
    """Rows of `extract_files`, in order, one document with its details; and a table's lines."""
    source = folder / "records.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in RECORDS), "utf-8")
    options: dict[str, Any] = {"extractor": extractors["embedded"], "text": ("title", "text")}
    rows, table = folder / "rows.jsonl", folder / "rows.csv"
    schemas = {"t": Product, "o": Codes}
    extract_files(schemas, source, rows, details=True, keep=("price",), category="kind", **options)
    extract_files(Product, source, table, limit=4, **options)
    read_rows = map(json.loads, rows.read_text("utf-8").splitlines())
    with table.open(encoding="utf-8", newline="") as lines:
        records = sorted(csv.DictReader(lines), key=str)
    return {
        "rows": plain(sorted(read_rows, key=lambda row: row["index"])),
        "table": records,
    }


def plain(value: Any, is_rounded: bool = False) -> Any:
    """A value of JSON types, probabilities rounded, without members that are None.

    What is no number is None, as of a token whose probability nobody told.
    """
    if isinstance(value, dict):
        return {
            name: plain(one, is_rounded or name in PROBABILITIES)
            for name, one in value.items()
            if one is not None
        }
    if isinstance(value, (list, tuple)):
        return [plain(one, is_rounded) for one in value]
    if is_rounded and isinstance(value, float):
        return None if isnan(value) else round(value, 4) + 0.0
    return value


def differences(frozen: Any, now: Any, place: str = "", is_near: bool = False) -> Iterator[str]:
    """Where two outputs differ. is_near: whether numbers may, by rounding."""
    if isinstance(frozen, dict) and isinstance(now, dict):
        for name in sorted(frozen.keys() | now.keys()):
            pair = frozen.get(name), now.get(name)
            yield from differences(*pair, f"{place}.{name}", is_near or name in PROBABILITIES)
    elif isinstance(frozen, list) and isinstance(now, list) and len(frozen) == len(now):
        for n, pair in enumerate(zip(frozen, now, strict=True)):
            yield from differences(*pair, f"{place}[{n}]", is_near)
    elif is_near and isinstance(frozen, float) and isinstance(now, float):
        if frozen != now and not abs(frozen - now) <= TOLERANCE:
            yield f"{place}: {frozen} was frozen, and is {now}"
    elif frozen != now or type(frozen) is not type(now):
        yield f"{place}: {frozen!r} was frozen, and is {now!r}"


def read(name: str) -> Any:
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


def write(name: str, found: Any) -> None:
    """The same bytes for the same outputs."""
    text = json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
