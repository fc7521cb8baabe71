"""A prompt file where annotated documents are read: none of them is shown, nor what nobody asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel

from schemax.commands.console import say
from schemax.evaluation.examples import Example, shown_text
from schemax.evaluation.schemas import known_names
from schemax.extractor import Extractor
from schemax.messages import counted, some_of
from schemax.prompt_file import PromptFile


def without_leaks(prompt: PromptFile, examples: Iterable[Example], file: Path) -> PromptFile:
    """The prompt without the demonstrations that are among the documents of a file; notes which."""
    if not prompt.demonstrations:
        return prompt
    texts = {shown_text("", example) for example in examples}
    told = [
        f"demonstrations[{place}]"
        for place, one in enumerate(prompt.demonstrations)
        if one.text in texts
    ]
    if not told:
        return prompt
    say(
        f"note: also in {file}, left out of the prompt: {counted(len(told), 'document')} of "
        f"{prompt.source}: {some_of(told)}"
    )
    left = (one for one in prompt.demonstrations if one.text not in texts)
    return replace(prompt, demonstrations=tuple(left))


def asked_by(prompt: PromptFile, schemas: Mapping[str, type[BaseModel]]) -> PromptFile:
    """The prompt without attributes that these schemas, made of others' annotations, do not ask
    for; notes which."""
    known = {category.casefold(): names for category, names in known_names(schemas).items()}
    dropped: dict[str, None] = {}
    shown = []
    for one in prompt.demonstrations:
        names = known.get(one.category.casefold(), one.attributes.keys())
        dropped |= {
            f"{one.category} > {name}": None for name in one.attributes if name not in names
        }
        own = {name: value for name, value in one.attributes.items() if name in names}
        shown.append(replace(one, attributes=own))
    if dropped:
        say(f"note: annotated in {prompt.source} and not asked for: {some_of([*dropped])}")
    return replace(prompt, demonstrations=tuple(shown))


def prompted(
    extractor: Extractor,
    schemas: Mapping[str, type[BaseModel]],
    examples: Sequence[Example],
    file: Path,
    *,
    made: bool,
) -> Extractor:
    """The extractor, for documents of a file. made: whether schemas are made of annotations."""
    prompt = without_leaks(extractor.prompt, examples, file)
    changed = copy(extractor)
    changed.prompt = asked_by(prompt, schemas) if made else prompt
    return changed
