"""Results as tables in Markdown, the paper's numbers beside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reproduce.places import WORDS_OF, places
from reproduce.published import TABLE_1, TABLE_3, TABLE_4
from schemax.benchmark.table import markdown_table
from schemax.evaluation.comparison import Comparison, compare
from schemax.evaluation.examples import read_examples
from schemax.evaluation.runs import SavedRun, read_runs


def table1(folder: Path) -> str:
    """F1 and dollars of files DATA_MODEL_DECODING.json; deviation: ours minus the paper's F1."""
    rows = []
    for (data, model, decoding), (run, *_) in _results(folder):
        paper = TABLE_1.get((data, model, decoding))
        low, high = run["f1_interval"]
        rows.append(
            (
                *(data, model, decoding, f"{run['f1']:.3f} ({low:.3f} to {high:.3f})"),
                *(f"{run['strict_f1']:.3f}", f"{run['passes_per_product']:.1f}"),
                *(f"{run['products_per_second']:.2f}", f"{run['dollars_per_1000']:.3g}"),
                *(("", "", "") if paper is None else _beside(run["f1"], *paper)),
            )
        )
    names = ("data", "model", "decoding", "F1", "strict F1", "passes", "documents/s", "$ per 1,000")
    return _table((*names, "F1, paper", "$ per 1,000, paper", "F1, deviation"), rows)


def table3(folder: Path) -> str:
    """Speeds over those of `generate` in the same run, batch 1, one document a prompt."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        report = json.loads(path.read_text())
        for row in report["engines"]:
            name = row["name"]
            if name == "generate" and path.stem != "hpd":
                continue
            label = f"draft {path.stem.rpartition('-')[2].upper()}" if name == "draft" else name
            paper = TABLE_3.get(label)
            rows.append(
                (
                    *(path.stem, name, f"{row['products_per_second']:.3g}"),
                    f"{row['times_generate']:.2f}",
                    "" if paper is None else f"{paper:.2f}",
                    row["note"],
                )
            )
    return _table(("run", "engine", "documents/s", "x generate", "paper", "note"), rows)


def table4(folder: Path) -> str:
    """The judge's F1 and the speed."""
    rows = []
    for (data, model, decoding), (run, *_) in _results(folder):
        paper = TABLE_4.get((model, decoding))
        judge = run["judge_by_product"]
        rows.append(
            (
                *(data, model, decoding, f"{judge['f1']:.3f}", str(judge["verdicts"])),
                f"{run['products_per_second']:.2f}",
                *(("", "") if paper is None else (f"{paper[0]:.3f}", f"{paper[1]:.2f}")),
            )
        )
    names = ("data", "model", "decoding", "LLM-F1", "verdicts", "documents/s")
    return _table((*names, "LLM-F1, paper", "documents/s, paper"), rows)


def parts(folder: Path) -> str:
    """All settings of every file, against its first one."""
    rows = []
    for key, runs in _results(folder):
        for run in runs:
            low, high = run["f1_interval"]
            rows.append(
                (
                    *(" ".join(key), run["decoding"], f"{run['f1']:.3f} ({low:.3f} to {high:.3f})"),
                    *(f"{run['strict_f1']:.3f}", f"{run['passes_per_product']:.1f}"),
                    str(run["finish_reasons"]["length"]),
                )
            )
    return _table(("model", "decoding", "F1", "strict F1", "passes", "cut off"), rows)


def stacking(folder: Path) -> str:
    """F1 and what is right by place in the prompt; the six orders of a prompt together as well."""
    rows = []
    of_orders = []
    for path in sorted(folder.glob("*.json")):
        drawn = path.stem if path.stem.startswith("turned") else "turned-0"
        data = folder.parent / "data" / f"oa-mine_{drawn}" / "test.jsonl"
        (result,) = json.loads(path.read_text())
        (run,) = read_runs(path)
        shares, words = places(run, read_examples(data))
        low, high = result["f1_interval"]
        rows.append(
            (
                *(path.stem, f"{result['f1']:.3f} ({low:.3f} to {high:.3f})"),
                *(_shares(shares), *(str(words[whose]) for whose in WORDS_OF)),
            )
        )
        if drawn == path.stem:
            of_orders.append(shares)
    means = [sum(of_place) / len(of_place) for of_place in zip(*of_orders, strict=True)]
    rows.append(("all orders", "", _shares(means), *("" for _ in WORDS_OF)))
    return _table(("prompt", "F1", "right, by place", *(f"wrong: {w}" for w in WORDS_OF)), rows)


def independence(folder: Path) -> str:
    """Pairs that change without earlier values, and with gaps: samples together, and each.

    Files are those of `reproduce.targets.independence`: autoregressive, isolated, gapped.
    """
    samples: dict[str, list[list[SavedRun]]] = {}
    for path in sorted(folder.glob("*.json")):
        samples.setdefault(path.stem.rpartition("_")[0], []).append(read_runs(path))
    rows = []
    for name, drawn in samples.items():
        for what, before, after in (("without earlier values", 0, 1), ("with gaps", 1, 2)):
            pairs = [(runs[before], runs[after]) for runs in drawn]
            each = [_compared([pair]) for pair in pairs]
            of_each = " ".join(f"{one.protocol.f1_difference:+.3f}" for one in each)
            rows.append((name.replace("_", " "), what, *_difference(_compared(pairs)), of_each))
    names = ("run", "what", "pairs", "differ", "of them, by products", "F1", "difference")
    last = ("right only before", "right only after", "McNemar p", "difference by sample")
    return _table((*names, *last), rows)


def _compared(pairs: Sequence[tuple[SavedRun, SavedRun]]) -> Comparison:
    """Of samples as one; a document that was drawn twice counts twice."""
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


def _shares(shares: Sequence[float]) -> str:
    return " ".join(f"{share:.2f}" for share in shares)


def _beside(f1: float, paper_f1: float, paper_dollars: float) -> tuple[str, str, str]:
    return f"{paper_f1:.3f}", f"{paper_dollars:.3f}", f"{f1 - paper_f1:+.3f}"


def _table(names: Sequence[str], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(markdown_table(names, rows))


TABLES: Mapping[str, Callable[[Path], str]] = MappingProxyType(
    {made.__name__: made for made in (table1, table3, table4, parts, stacking, independence)}
)
