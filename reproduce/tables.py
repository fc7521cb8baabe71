"""Results as tables in Markdown, the paper's numbers beside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reproduce.published import TABLE_1, TABLE_3, TABLE_4
from schemax.benchmark.table import markdown_table
from schemax.evaluation.comparison import Comparison, compare
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


def independence(folder: Path) -> str:
    """Every file's settings by pairs: what changes without earlier values, and with gaps.

    Files are those of `reproduce.targets.independence`: autoregressive, isolated, gapped.
    """
    rows = []
    for path in sorted(folder.glob("*.json")):
        with_values, without, gapped = read_runs(path)
        for what, first, second in (
            ("without earlier values", with_values, without),
            ("with gaps", without, gapped),
        ):
            rows.append((path.stem, what, *_difference(first, second)))
    names = ("run", "what", "pairs", "differ", "of them, by products", "F1", "difference")
    return _table((*names, "right only before", "right only after", "McNemar p"), rows)


def _difference(first: SavedRun, second: SavedRun) -> Iterator[str]:
    found: Comparison = compare(first.examples, first.predictions, second.predictions)
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


def _beside(f1: float, paper_f1: float, paper_dollars: float) -> tuple[str, str, str]:
    return f"{paper_f1:.3f}", f"{paper_dollars:.3f}", f"{f1 - paper_f1:+.3f}"


def _table(names: Sequence[str], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(markdown_table(names, rows))


TABLES: Mapping[str, Callable[[Path], str]] = MappingProxyType(
    {made.__name__: made for made in (table1, table3, table4, parts, independence)}
)
