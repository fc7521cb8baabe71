"""`schemax check`: lists all faults of declarations at once."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from schemax.base.messages import harmless, say
from schemax.commands import options
from schemax.commands.console import plain_warnings, refused_settings
from schemax.commands.option_groups import argument, option, verb
from schemax.evaluation.diagnosis.findings import findings
from schemax.formats import get_format


class Given(options.Tokenizer):
    """Options"""

    where: str = argument("WHERE")
    """module, file.py, either with :Class, schema.json, a folder of such documents, or a ready-made
    name. Of a module, all classes that it defines itself and that derive from pydantic.BaseModel,
    are dataclasses or TypedDicts."""
    formats: list[str] | None = option("--format")
    """json, yaml or xml; may be repeated. Default: json."""
    as_json: bool = option("--json", default=False)
    """Print the findings as JSON."""


@verb
def check(given: Given) -> None:
    """Finds all refusals and warnings of all declarations in WHERE, without loading a model.

    Exit status: 0 nothing is refused, 1 something is, 2 WHERE or an option cannot be used.
    """
    with refused_settings():
        chosen = {name: get_format(name) for name in given.formats or ("json",)}
    model = given.unloaded()
    with plain_warnings(quiet=True):
        checked, found = findings(given.where, model, chosen)
    refusals = sum(finding.level == "refusal" for finding in found)
    if given.as_json:
        rows = [asdict(finding) for finding in found]
        print(json.dumps({"checked": checked, "findings": rows}, ensure_ascii=False, indent=2))
    else:
        for finding in found:
            print(harmless(str(finding)))
        count = f"refusals: {refusals}, warnings: {len(found) - refusals}"
        say(f"declarations: {len(checked)}, {count}")
    if refusals:
        raise typer.Exit(1)
