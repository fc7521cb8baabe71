"""`schemax check`: lists all faults of declarations at once."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from schemax.base.messages import escape_controls, say
from schemax.base.options import option
from schemax.commands import options
from schemax.commands.options import argument, plain_warnings, refused_settings, verb
from schemax.evaluation.diagnosis.findings import findings
from schemax.formats import get_format


class Args(options.Tokenizer):
    """Options"""

    where: str = argument("WHERE")
    """module, file.py, either with :Class, schema.json, a folder of such documents, or a ready-made
    name. A module's own classes are checked that derive from pydantic.BaseModel, are dataclasses or
    TypedDicts."""
    formats: list[str] | None = option("--format")
    """json, yaml or xml; may be repeated. Default: json."""
    as_json: bool = option("--json", default=False)
    """Print the findings as JSON."""


@verb
def check(args: Args) -> None:
    """Finds all refusals and warnings of all declarations in WHERE, without loading a model.

    Exit status: 0 nothing is refused, 1 something is, 2 WHERE or an option cannot be used.
    """
    with refused_settings():
        chosen = {name: get_format(name) for name in args.formats or ("json",)}
    model = args.unloaded()
    with plain_warnings(quiet=True):
        checked, faults = findings(args.where, model, chosen)
    refusals = sum(finding.level == "refusal" for finding in faults)
    if args.as_json:
        rows = [asdict(finding) for finding in faults]
        print(json.dumps({"checked": checked, "findings": rows}, ensure_ascii=False, indent=2))
    else:
        for finding in faults:
            print(escape_controls(str(finding)))
        count = f"refusals: {refusals}, warnings: {len(faults) - refusals}"
        say(f"declarations: {len(checked)}, {count}")
    if refusals:
        raise typer.Exit(1)
