"""`python -m benchmarks gpu`: measures a GPU in one command, part by part.

Every part writes a file as soon as it is done, and a part whose file exists is not measured again;
the page is made from the files.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.compare import ModelChoice, build_grid, load_subject
from benchmarks.generated import Sizes
from benchmarks.page import markdown, markdown_table
from benchmarks.plot import plot
from benchmarks.random_models import SHAPES, shape_config
from benchmarks.rivals import ALL
from schemax.base.resources import resource_dir
from schemax.compiler import load_codec
from schemax.errors import ModelError
from schemax.evaluation.benchmark.compare import ComparisonSettings, compare_engines
from schemax.evaluation.benchmark.engines import EngineOptions
from schemax.evaluation.benchmark.measure import NO_TIME, Rules, synchronize
from schemax.evaluation.benchmark.report import EngineRow, Report, describe_environment
from schemax.evaluation.diagnosis.agreement import agreements
from schemax.evaluation.reliability import can_plot
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.loading import pick_device
from schemax.runtime.slots.memory import is_out_of_memory, release_memory

SHAPES_OF_CARDS = ("qwen3-8b", "qwen3-0.6b", "qwen3-1.7b")
# Seconds for all parts. As each part begins, the remaining time is divided by weight.
TIME = 25 * 60
_WEIGHTS = {"agreement": 2, "rivals": 4, "grid": 2}
TOKENS, ATTRIBUTES = (250, 120), (16, 4, 48)
_BOUNDED = ("floor", "isolated")
_RIVALS = ("generate", "generate-flash", "continuous", "per-attribute-cached")
_COMMON = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 4096,
    "initializer_range": 0.1, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip
_SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 32}
# Families of models, among them with windows, sinks, soft caps and experts.
_FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "qwen3": {},
    "llama": {},
    "mistral": {"sliding_window": 32},
    "phi3": {},
    "olmo2": {},
    "gemma2": _SLIDING,
    "gemma3_text": _SLIDING,
    "gpt_oss": {**_SLIDING, "num_local_experts": 4, "num_experts_per_tok": 2},
}


@dataclass(frozen=True, slots=True)
class Suite:
    """The settings of a suite. documents: of every comparison; seconds: see `TIME`."""

    out: Path
    device: str = "auto"
    shapes: Sequence[str] = SHAPES_OF_CARDS
    documents: int = 256
    repeats: int = 3
    price_per_hour: float | None = None
    seconds: float = TIME


def run_suite(suite: Suite, tell: Callable[[str], None]) -> Path:
    """Measures parts without a file; returns the page, which lists what is missing.

    Raises ValueError for an unknown shape, and ModelError for a device that is not available.
    """
    for shape in suite.shapes:
        shape_config(shape)
    device, end = pick_device(suite.device), time.monotonic() + suite.seconds
    suite.out.mkdir(parents=True, exist_ok=True)
    missing = []
    parts = dict(_parts(suite, device, tell))
    waiting = [name for name in parts if not (suite.out / f"{name}.json").exists()]
    while waiting:
        name, *waiting = waiting
        path, left = suite.out / f"{name}.json", end - time.monotonic()
        if name != "card" and left <= 0:
            missing.append(f"{name}: {NO_TIME}; the same command goes on with it")
            continue
        share = _weight(name) / sum(map(_weight, [name, *waiting]))
        tell(f"{name} ...")
        try:
            found = parts[name](share * left)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            missing.append(f"{name}: the card has too little memory")
            continue
        finally:
            gc.collect()
            release_memory()
        path.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
        _write_page(suite.out, missing)
    return _write_page(suite.out, missing)


def _weight(name: str) -> int:
    return _WEIGHTS.get(name.rpartition("-")[2], 1)


def _parts(
    suite: Suite, device: torch.device, tell: Callable[[str], None]
) -> Iterator[tuple[str, Callable[[float], dict[str, Any]]]]:
    """Yields the parts, most important first; a part starts nothing after its given seconds."""
    yield "card", lambda _: _card(device)
    yield "agreement", lambda seconds: {"rows": list(_agreement(device, seconds))}
    plain = ComparisonSettings(
        engines=_BOUNDED,
        rules=Rules(suite.repeats, rival_documents=min(64, suite.documents)),
        options=EngineOptions(generate_batches=(8, 32, 64)),
        price_per_hour=suite.price_per_hour,
        rivals=ALL,
    )

    def compare(
        shape: str, tokens: int, attributes: int, few: int | None = None, **changes: Any
    ) -> Callable[[float], dict[str, Any]]:
        """few: the documents of the paper's grid, measured only if they are given."""
        sizes = Sizes(few or suite.documents, document_tokens=tokens, attributes=attributes)
        comparison = replace(plain, **changes)

        def measure(seconds: float) -> dict[str, Any]:
            rules = replace(comparison.rules, seconds=seconds)
            subject = load_subject(ModelChoice(shape=shape, device=suite.device), sizes)
            grid = build_grid(subject.model) if few else []
            return compare_engines(subject, replace(comparison, rules=rules), tell, grid).to_dict()

        return measure

    for shape in suite.shapes:
        yield f"{shape}-rivals", compare(shape, 250, 16, engines=(*_BOUNDED, *_RIVALS))
    for tokens in TOKENS:
        for attributes in ATTRIBUTES:
            for shape in suite.shapes:
                yield f"{shape}-{tokens}x{attributes}", compare(shape, tokens, attributes)
    small, few = min(suite.shapes, key=lambda shape: SHAPES[shape]["hidden_size"]), suite.documents
    rules = Rules(1, rival_documents=few)
    grid = compare(small, 250, 16, engines=("floor",), rules=rules, few=min(64, few))
    yield f"{small}-grid", grid


def _card(device: torch.device) -> dict[str, Any]:
    """Measures the machine, and the FLOP/s of large matrix products."""
    size, rounds = (8192, 20) if device.type != "cpu" else (512, 2)
    left = torch.ones(size, size, dtype=torch.bfloat16, device=device)
    left @ left
    synchronize(device)
    started = time.perf_counter()
    for _ in range(rounds):
        left @ left
    synchronize(device)
    flops = 2 * size**3 * rounds / (time.perf_counter() - started)
    total = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else None
    return {**describe_environment(device), "bfloat16_flops": flops, "memory": total}


def _agreement(device: torch.device, seconds: float) -> Iterator[dict[str, Any]]:
    """Yields the agreement of families with the oracle: exact in float32, shares in bfloat16."""
    end = time.monotonic() + seconds
    codec = load_codec(resource_dir("embedded"))
    for name, settings in _FAMILIES.items():
        torch.manual_seed(0)
        config = AutoConfig.for_model(
            name, **{**_COMMON, "vocab_size": codec.vocab_size}, **settings
        )
        attention = "eager" if getattr(config, "attn_logit_softcapping", None) else None
        make: Any = AutoModelForCausalLM.from_config
        model = make(config, attn_implementation=attention).eval()
        for dtype in (torch.float32, torch.bfloat16):
            row = {"family": name, "dtype": str(dtype).removeprefix("torch.")}
            if time.monotonic() > end:
                yield {**row, "problem": NO_TIME}
                continue
            try:
                found = list(agreements(prepare(model.to(device, dtype)), codec))
            except ModelError as error:
                yield {**row, "problem": str(error)}
                continue
            yield {
                **row,
                "tokens": sum(way.tokens for way in found),
                "agreeing": sum(way.agreeing for way in found),
                "difference": max(way.difference for way in found),
                "exact": all(way.exact or way.refused for way in found),
            }


# The page


def _write_page(out: Path, missing: Sequence[str]) -> Path:
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(out.glob("*.json"))}
    card = found.pop("card")
    name = card["accelerator"] or card["cpu"]
    lines = [f"# schemax on {name}", "", f"torch {card['torch']}, {card['date']}. Matrix products"]
    lines[-1] += f" in bfloat16 reach {card['bfloat16_flops'] / 1e12:,.1f} TFLOP/s."
    if "agreement" in found:
        rows = found.pop("agreement")["rows"]
        lines += ["", "## Agreement with the oracle", "", *_agreement_table(rows)]
    reports = {part: Report.from_dict(data) for part, data in found.items()}
    if reports:
        cells = [cell for part, report in reports.items() for cell in _speeds(part, report, card)]
        names = ("part", "engine", "documents/s", "of the floor", "MFU", "$ per million")
        lines += ["", "## Speed", "", *markdown_table(names, cells)]
    for part, report in reports.items():
        lines += ["", f"## {part}", "", markdown(report)]
        if can_plot():
            plot(report, out / f"{part}.svg")
            lines += ["", f"![{part}]({part}.svg)"]
    cut = [note for part, report in reports.items() for note in _cut(part, report)]
    lines += ["", *(f"- {item}" for item in [*cut, *missing])]
    page = out / "index.md"
    page.write_text("\n".join(lines).rstrip() + "\n", "utf-8")
    return page


def _cut(part: str, report: Report) -> Iterator[str]:
    """Yields notes on measurements of a part that its time did not allow."""
    repeats, again = report.settings["repeats"], f"without {part}.json it is measured anew"
    for row in (*report.engines, *report.sweep):
        if len(row.seconds) < repeats:
            yield f"{part}: {row.name} was timed {len(row.seconds)} of {repeats} times; {again}"
    for skipped in report.skipped:
        if skipped["reason"] == NO_TIME:
            yield f"{part}: {skipped['name']}: {NO_TIME}; {again}"


def _agreement_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
        if "problem" in row:
            return row["family"], row["dtype"], row["problem"], "", ""
        share = f"{row['agreeing'] / row['tokens']:.2%}"
        exact = ("yes" if row["exact"] else "no") if row["dtype"] == "float32" else ""
        return row["family"], row["dtype"], share, exact, f"{row['difference']:.1e}"

    names = ("family", "dtype", "tokens alike", "exact", "largest difference of logits")
    return markdown_table(names, map(cells, rows))


def _speeds(part: str, report: Report, card: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for row in report.engines:
        price = row.dollars_per_1000
        yield (
            part,
            row.name,
            f"{row.products_per_second:,.1f}",
            "" if row.of_floor is None else f"{row.of_floor:.2f}",
            f"{_flops(report, row) / card['bfloat16_flops']:.2f}" if row.kind != "rival" else "",
            "" if price is None else f"{1000 * price:,.2f}",
        )


def _flops(report: Report, row: EngineRow) -> float:
    """Returns FLOP/s of the tokens that must be passed: an engine gains none by passing more."""
    shape, tokens = report.model["shape"], report.work["tokens"]
    head = shape["vocab_size"] * shape["hidden_size"]
    tied = SHAPES[report.model["name"]]["tie_word_embeddings"]
    layers = report.model["parameters"] - head * (1 if tied else 2)
    work = 2 * (layers * tokens["passed"] + head * tokens["head"])
    return float(work / report.work["listings"] * row.products_per_second)
