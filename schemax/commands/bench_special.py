"""What `schemax bench` measures instead of comparing engines, and which options go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from schemax.commands.console import UsageError, plain_warnings, refused_settings, say

if TYPE_CHECKING:
    from schemax.benchmark.compare import Comparison

# Options that each of them makes use of; any other would be ignored, so it is refused.
_USED = {
    "constraints": (
        *("documents", "document_tokens", "repeats", "seed", "quiet"),
        *("model", "shape", "tokenizer", "device", "dtype", "threads"),
    ),
    "tables": ("documents", "model", "device", "dtype", "threads", "quiet"),
    "earlier": ("as_json", "picture", "page", "quiet"),
}


def refuse_others(context: typer.Context) -> None:
    """Raises UsageError for an option that is given beside a special measurement without use."""
    given = [option for option in context.command.params if _is_given(context, option.name)]
    special = next((option for option in given if option.name in _USED), None)
    if special is None:
        return
    used = (special.name, *_USED[str(special.name)])
    others = [option.opts[0] for option in given if option.name not in used]
    if others:
        raise UsageError(f"{special.opts[0]} does not go with {', '.join(others)}")


def _is_given(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"


def constraints(comparison: Comparison, quiet: bool) -> None:
    from schemax.benchmark.compare import load_model
    from schemax.benchmark.constraints import measure_constraints

    with plain_warnings(quiet=quiet), refused_settings():
        model, tokenizer = load_model(comparison)
        costs = measure_constraints(
            model,
            tokenizer,
            documents=comparison.documents,
            document_tokens=comparison.sizes.document_tokens if comparison.sizes else 250,
            repeats=comparison.rules.repeats,
            seed=comparison.rules.seed,
            tell=(lambda _: None) if quiet else say,
        )
    for line in costs.lines():
        print(line)


def tables(
    rows: int,
    documents: int,
    model: str | None,
    device: str,
    dtype: str,
    threads: int | None,
    quiet: bool,
) -> None:
    import torch

    from schemax.commands.table_costs import measure_tables

    if threads is not None:
        torch.set_num_threads(threads)
    with plain_warnings(quiet=quiet):
        costs = measure_tables(
            rows,
            documents=documents,
            model=model,
            device=device,
            dtype=dtype,
            tell=(lambda _: None) if quiet else say,
        )
    for line in costs.lines():
        print(line)
