"""Results as tables in Markdown, beside the paper's numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.page import markdown, markdown_table
from reproduce.places import WORDS_OF, places
from reproduce.published import FIGURE_4, TABLE_1, TABLE_3, TABLE_4
from schemax.evaluation.benchmark.report import Report, number
from schemax.evaluation.comparison import Comparison, compare
from schemax.evaluation.examples import read_examples
from schemax.evaluation.runs import SavedRun, read_runs

_SPEED = ("engine", "documents/s", "of the repeats", "x generate")
_QUALITY = ("F1", "strict F1", "ECE", "legal")
# The comparisons in a file of `independence`: the places of two settings.
_CHANGES = (("without earlier values", 0, 1), ("with gaps", 1, 2), ("asked alone", 1, 3))
_BY_PLACE = ("right, by place", *(f"wrong: {whose}" for whose in WORDS_OF))


def table1(folder: Path) -> str:
    """Returns F1 and dollars of files DATA_MODEL_DECODING.json. deviation: F1 minus the paper's."""
    rows = []
    for (data, model, decoding), (run, *_) in _results(folder):
        paper = TABLE_1.get((data, model, decoding))
        rows.append(
            (
                *(data, model, decoding, _f1(run)),
                *(f"{run['strict_f1']:.3f}", f"{run['passes_per_product']:.1f}"),
                *(f"{run['products_per_second']:.2f}", f"{run['dollars_per_1000']:.3g}"),
                *(("", "", "") if paper is None else _beside(run["f1"], *paper)),
            )
        )
    names = ("data", "model", "decoding", "F1", "strict F1", "passes", "documents/s", "$ per 1,000")
    return _table((*names, "F1, paper", "$ per 1,000, paper", "F1, deviation"), rows)


def table3(folder: Path) -> str:
    """Returns speed-ups over `generate` in the same run: batch 1, one document per prompt."""
    rows = []
    for run, row in _engines(folder):
        if row["name"] == "generate" and run != "hpd":
            continue
        is_draft = row["name"] == "draft"
        label = f"draft {run.rpartition('-')[2].upper()}" if is_draft else row["name"]
        paper = TABLE_3.get(label)
        beside = "" if paper is None else f"{paper:.2f}"
        rows.append((run, *_speed(row), beside, row["note"]))
    return _table(("run", *_SPEED, "paper", "note"), rows)


def table4(folder: Path) -> str:
    """Returns speeds, F1 by labels, and F1 by a judge if there was one."""
    rows = []
    key_by_key: dict[str, float] = {}
    for (data, model, decoding), (run, *_) in _results(folder):
        rate = run["products_per_second"]
        paper = TABLE_4.get((model, decoding))
        judge = run.get("judge_by_product")
        if decoding == "autoregressive":
            key_by_key[model] = rate
        rows.append(
            (
                *(data, model, decoding, _f1(run)),
                *(("", "") if judge is None else (f"{judge['f1']:.3f}", str(judge["verdicts"]))),
                *(f"{rate:.2f}", f"{rate / key_by_key[model]:.1f}"),
                *(("", "") if paper is None else (f"{paper[0]:.3f}", f"{paper[1]:.2f}")),
            )
        )
    names = ("data", "model", "decoding", "F1 of labels", "LLM-F1", "verdicts", "documents/s")
    return _table((*names, "x autoregressive", "LLM-F1, paper", "documents/s, paper"), rows)


def figure4(folder: Path) -> str:
    """Returns the engines and the grid, and the largest speed-up in the grid."""
    report = Report.from_dict(json.loads((folder / "figure4.json").read_text()))
    best = max(row.times_generate or 0 for row in report.sweep if row.name.startswith("paper"))
    return f"{markdown(report)}\n\nAt most {best:.2f} times `generate`; the paper's: {FIGURE_4}."


def ablations(folder: Path) -> str:
    """Returns speed-ups over `generate`, by stacking and by the number of attributes."""
    rows = [(run.replace("_", " "), *_speed(row)) for run, row in _engines(folder)]
    return _table(("run", *_SPEED), rows)


def parts(folder: Path) -> str:
    """Returns all settings of every file: F1, right pairs by place, and origins of wrong values.

    missed: annotated values that are null. cut off: slots that exceeded their budget.
    """
    rows = []
    examples = read_examples(folder.parent / "data" / "oa-mine_parts" / "test.jsonl")
    for path in sorted(folder.glob("*.json")):
        for run, saved in zip(json.loads(path.read_text()), read_runs(path), strict=True):
            shares, words = places(saved, examples)
            missed, cut = run["counts"]["vn"], run["finish_reasons"]["length"]
            told = (path.stem.replace("_", " "), saved.name, _f1(run))
            rows.append((*told, *_by_place(shares, words), str(missed), str(cut)))
    return _table(("model", "decoding", "F1", *_BY_PLACE, "missed", "cut off"), rows)


def stacking(folder: Path) -> str:
    """Returns F1 and right pairs by place in the prompt, also averaged over six orders."""
    rows = []
    of_orders = []
    for path in sorted(folder.glob("*.json")):
        drawn = path.stem if path.stem.startswith("turned") else "turned-0"
        data = folder.parent / "data" / f"oa-mine_{drawn}" / "test.jsonl"
        (result,) = json.loads(path.read_text())
        (run,) = read_runs(path)
        shares, words = places(run, read_examples(data))
        rows.append((path.stem, _f1(result), *_by_place(shares, words)))
        if drawn == path.stem:
            of_orders.append(shares)
    means = [sum(of_place) / len(of_place) for of_place in zip(*of_orders, strict=True)]
    rows.append(("all orders", "", _shares(means), *("" for _ in WORDS_OF)))
    return _table(("prompt", "F1", *_BY_PLACE), rows)


def independence(folder: Path) -> str:
    """Returns the pairs that change without earlier values, with gaps, alone; overall, by sample.

    Settings of a file of `reproduce.targets.independence`: autoregressive, isolated, gapped, alone.
    """
    samples: dict[str, list[list[SavedRun]]] = {}
    for path in sorted(folder.glob("*.json")):
        samples.setdefault(path.stem.rpartition("_")[0], []).append(read_runs(path))
    rows = []
    for name, drawn in samples.items():
        for what, before, after in _CHANGES:
            pairs = [(runs[before], runs[after]) for runs in drawn]
            each = [_compared([pair]) for pair in pairs]
            of_each = " ".join(f"{one.protocol.f1_difference:+.3f}" for one in each)
            rows.append((name.replace("_", " "), what, *_difference(_compared(pairs)), of_each))
    names = ("run", "what", "pairs", "differ", "of them, by products", "F1", "difference")
    last = ("right only before", "right only after", "McNemar p", "difference by sample")
    return _table((*names, *last), rows)


def layouts(folder: Path) -> str:
    """Returns scores by the layout of training and of decoding, with speed-ups.

    legal: the mean probability that the model gives to values that fields allow.
    """
    rows = []
    for (model, weights, trained), runs in _results(folder):
        first, *_ = runs
        key_by_key = first["products_per_second"] if trained == "autoregressive" else None
        for run in runs:
            rate = run["products_per_second"]
            times = "" if key_by_key is None else f"{rate / key_by_key:.1f}"
            told = (run["decoding"], *_quality(run), f"{run['passes_per_product']:.1f}")
            rows.append((model, weights, trained, *told, f"{rate:.2f}", times))
    names = ("model", "weights", "trained for", "decoded", *_QUALITY, "passes", "documents/s")
    return _table((*names, "x autoregressive"), rows)


def distillation(folder: Path) -> str:
    """Returns scores and speeds of students, decoded in parallel."""
    rows = [
        (model, student, *_quality(run), f"{run['products_per_second']:.2f}")
        for (model, student), (run, *_) in _results(folder)
    ]
    return _table(("model", "student", *_QUALITY, "documents/s"), rows)


def _quality(run: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = run["strict_f1_interval"]
    reliability, legal = run["reliability"], run["legal_mass"]
    return (
        _f1(run),
        f"{run['strict_f1']:.3f} ({low:.3f} to {high:.3f})",
        "" if reliability is None else f"{reliability['ece']:.3f}",
        "" if legal is None else f"{legal:.3f}",
    )


def _compared(pairs: Sequence[tuple[SavedRun, SavedRun]]) -> Comparison:
    """Compares samples as one; a document that was drawn twice counts twice."""
    return compare(
        [one for first, _ in pairs for one in first.examples],
        [one for first, _ in pairs for one in first.predictions],
        [one for _, second in pairs for one in second.predictions],
    )


def _difference(found: Comparison) -> Iterator[str]:
    low, high = found.differing_share_interval
    paired = found.protocol
    worst, best = paired.f1_difference_interval
    yield f"{found.pairs:,}"
    yield f"{found.differing_pairs:,}"
    yield f"{found.differing_pairs / found.pairs:.1%} ({low:.1%} to {high:.1%})"
    yield f"{paired.f1[0]:.3f} to {paired.f1[1]:.3f}"
    yield f"{paired.f1_difference:+.3f} ({worst:+.3f} to {best:+.3f})"
    yield str(paired.right_only_in_first)
    yield str(paired.right_only_in_second)
    yield f"{paired.mcnemar_p:.2g}"


def _results(folder: Path) -> Iterator[tuple[tuple[str, ...], list[Mapping[str, Any]]]]:
    for path in sorted(folder.glob("*.json")):
        yield tuple(path.stem.split("_")), json.loads(path.read_text())


def _engines(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields file names and rows of all benchmarks: attributes_8 before attributes_16."""
    for path in sorted(folder.glob("*.json"), key=lambda path: (len(path.stem), path.stem)):
        for row in json.loads(path.read_text())["engines"]:
            yield path.stem, row


def _speed(row: Mapping[str, Any]) -> tuple[str, ...]:
    rates = [number(row[name]) for name in ("products_per_second", "slowest", "fastest")]
    return row["name"], rates[0], f"{rates[1]} to {rates[2]}", f"{row['times_generate']:.2f}"


def _f1(run: Mapping[str, Any]) -> str:
    low, high = run["f1_interval"]
    return f"{run['f1']:.3f} ({low:.3f} to {high:.3f})"


def _by_place(shares: Sequence[float], words: Mapping[str, int]) -> tuple[str, ...]:
    return _shares(shares), *(str(words[whose]) for whose in WORDS_OF)


def _shares(shares: Sequence[float]) -> str:
    return " ".join(f"{share:.2f}" for share in shares)


def _beside(f1: float, paper_f1: float, paper_dollars: float) -> tuple[str, str, str]:
    return f"{paper_f1:.3f}", f"{paper_dollars:.3f}", f"{f1 - paper_f1:+.3f}"


def _table(names: Sequence[str], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(markdown_table(names, rows))


TABLES: Mapping[str, Callable[[Path], str]] = MappingProxyType(
    {
        made.__name__: made
        for made in (
            *(table1, table3, table4, figure4),
            *(ablations, parts, stacking, independence, layouts, distillation),
        )
    }
)
