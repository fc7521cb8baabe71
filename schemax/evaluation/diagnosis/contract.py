"""The contract of an extraction before a document is read, as plain data: `schemax explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from schemax.attributes import Attribute
from schemax.attributes.attributes import named_misfits, waves_of
from schemax.compiler import CompiledSchema, compile_schema
from schemax.compiler.prompt import control_token_warning
from schemax.compiler.skeleton import boundary_warning, key_behind, skeleton_text
from schemax.compiler.slot_specs import Fields
from schemax.config import DecodingConfig
from schemax.errors import SchemaError
from schemax.formats import OutputFormat, Path, StopAt, StopRule
from schemax.formats.json_format import JsonLiteralStop, JsonObjectStop
from schemax.results import SlotText
from schemax.runtime.slots.plan import plan_prompt, with_values
from schemax.tokens import PromptIds, SlotSpec

_LATER = (
    "Waves: a wave is asked when all earlier waves are filled; a key holds the values that its "
    "field looks at, null for unknown values."
)


def contract_of(
    compiled: CompiledSchema, *, template: str, tokenizer: str, sample: str
) -> dict[str, Any]:
    """Returns all that `explain` shows, as plain data. sample: a document's text.

    skeleton: keys with their slots marked; one text per branch, else a single text.
    slots: the slots of a prompt's first document, and of a list's first item. key_start, key_end,
        first_value: position ids; odd_boundary: True if the tokenizer would merge the end of the
        key with the value.
    stop: the stop rule in words, the number of states of its automaton, and the end-of-text ids.
    tokens: lengths of one prompt, with the sample in each document.
    waves: fields by wave, with the fields that each looks at; [] if all are read at once.
    steps: the most forward passes that a document takes part in, retries and repairs not counted;
        autoregressive is None for schemas that it cannot read, such as lists of nested models.
    """
    config = compiled.decoding
    prompt = compiled.encode([sample] * _num_documents(compiled))[0]
    plan = plan_prompt(prompt, config)
    return {
        "schema": compiled.schema.__name__,
        "category": compiled.category,
        "format": compiled.format.name,
        "template": template,
        "tokenizer": tokenizer,
        "decoding": asdict(config),
        "sample": sample,
        "prompt": _prompt_text(compiled),
        "skeleton": _skeleton(compiled),
        "slots": []
        if config.layout == "autoregressive"
        else _slots(compiled, plan.last_position.tolist()),
        "waves": _waves(compiled),
        "stop": {
            "rule": _stop_in_words(compiled.stop_rule),
            "states": len(compiled.stop.next_state),
            "eos_ids": compiled.stop.eos_ids,
        },
        "tokens": {
            "instruction": len(prompt.instruction) + sum(map(len, prompt.demonstrations)),
            "documents": sum(map(len, prompt.documents)),
            "opening": len(prompt.opening),
            "keys": sum(len(key) for row in prompt.keys for key in row),
        },
        "steps": {
            "this": _steps(compiled.fields) if compiled.fields else compiled.k_max[0],
            "autoregressive": _autoregressive_steps(compiled),
        },
        "visibility": [*sentences(config), *([_LATER] if compiled.waves is not None else [])],
        "picture": picture(config),
        "warnings": list(_warnings(compiled)),
    }


def _warnings(compiled: CompiledSchema) -> Iterator[str]:
    yield from (f"{name}: {misfit}" for name, misfit in named_misfits(compiled.attributes))
    if tokens := compiled.prompt.control_tokens:
        yield control_token_warning(tokens)
    if compiled.odd_boundaries:
        yield boundary_warning(compiled.format, compiled.odd_boundaries)


def _wave_numbers(attributes: Sequence[Attribute]) -> list[int]:
    own = [attribute.path for attribute in attributes]
    return waves_of(own, [attribute.after for attribute in attributes])


def _waves(compiled: CompiledSchema) -> list[list[dict[str, Any]]]:
    """Returns fields by wave, with the fields that each looks at."""
    waves: dict[int, list[dict[str, Any]]] = {}

    def collect(attributes: Sequence[Attribute], head: str, before: int) -> None:
        for attribute, number in zip(attributes, _wave_numbers(attributes), strict=True):
            name = f"{head}{attribute.name}"
            after = [f"{head}{'.'.join(path)}" for path in attribute.after]
            waves.setdefault(before + number, []).append({"name": name, "after": after})
            collect(attribute.fields, f"{name}.", before + number - 1)

    if compiled.waves is not None:
        collect(compiled.attributes, "", 0)
    return [waves[number] for number in sorted(waves)] if len(waves) > 1 else []


def _num_documents(compiled: CompiledSchema) -> int:
    """Returns the number of documents in a prompt: 1 for isolated documents."""
    config = compiled.decoding
    return config.documents_per_prompt if config.documents == "stacked" else 1


def _prompt_text(compiled: CompiledSchema) -> str:
    """Returns the prompt; control tokens in data are marked: see `TextCodec.marked`."""
    prompt = compiled.prompt
    data = compiled.codec.marked
    count = _num_documents(compiled)
    names = [f"«text {j + 1}»" for j in range(count)] if count > 1 else ["«text»"]
    documents = "".join(
        name.join(map(data, literals)) for name, literals in zip(names, prompt.pieces, strict=True)
    )
    turns = "".join(markup + data(content) for markup, content in prompt.chat.turns)
    head = turns + prompt.chat.prefix + data(prompt.instruction)
    closing = data(prompt.closing)
    if (nearest := compiled.nearest) is not None:
        places = "«text of an example»", "«its output»"
        shown = "".join(text if is_markup else data(text) for is_markup, text in nearest.parts)
        for sentinel, name in zip(nearest.sentinels, places, strict=True):
            shown = shown.replace(sentinel, name)
        several = f"«of {len(nearest.examples)} examples the {nearest.count} most like the text: »"
        head += several + shown
    return head + documents + closing + prompt.chat.suffix + compiled.format.opening()


def _skeleton(compiled: CompiledSchema) -> tuple[str, ...]:
    if compiled.decoding.layout == "autoregressive":
        return (skeleton_text(compiled.attributes, compiled.format),)
    labels = {attribute.path: attribute.labels for attribute in compiled.slot_attributes}
    marked = tuple(
        f"{_behind(attribute, labels, compiled.format) if attribute.after else key}"
        f"⟦{attribute.name}, {k_max}⟧"
        for row in compiled.key_texts
        for key, attribute, k_max in zip(row, compiled.slot_attributes, compiled.k_max, strict=True)
    )
    marked += tuple(
        f"{_behind(leaf, beside, compiled.format)}⟦{leaf.name}, {k_max}⟧"
        for leaf, k_max, beside, _ in _first_items(compiled.fields)
    )
    return marked if compiled.decoding.layout == "branched" else ("".join(marked),)


def _behind(attribute: Attribute, beside: Mapping[Path, Path], form: OutputFormat) -> str:
    """Returns the text of a branch's key. beside: path -> labels of fields that it may look at."""
    lead = tuple((beside[path], f" ⟦{'.'.join(path)}⟧") for path in attribute.after)
    return key_behind(lead, attribute.labels, form)


def _slots(compiled: CompiledSchema, ends: Sequence[int]) -> list[dict[str, Any]]:
    """Returns the slots as data. Keys that hold other fields' values hold null.

    ends: the position id of every key's last token.
    """
    specs = zip(compiled.attributes, compiled.slots, strict=False)
    copied = {attribute.path for attribute, spec in specs if spec.copying is not None}

    def slot(attribute: Attribute, key: str, num_tokens: int, k_max: int, end: int) -> Any:
        names = [variant.choices or (variant.kind,) for variant in attribute.variants]
        name = " | ".join(chain.from_iterable(names))
        return {
            "name": attribute.name,
            "shown": " > ".join(attribute.labels),
            "type": f"list of {name}" if attribute.is_list else name,
            "extractive": attribute.path in copied and attribute.is_text,
            "nullable": attribute.nullable,
            "k_max": k_max,
            "key": key,
            "key_tokens": num_tokens,
            "key_start": end - num_tokens + 1,
            "key_end": end,
            "first_value": end + 1,
            "odd_boundary": attribute.name in compiled.odd_boundaries,
        }

    keys = compiled.keys[0]
    if compiled.waves is not None:
        start = ends[0] - len(keys[compiled.waves.fields.first[0]])
        null = SlotText(compiled.format.escape(None), "stop", 1, complete=True)
        keys = tuple(slot.key for slot in compiled.known([null] * len(keys)))
        ends = [start + len(key) for key in keys]
    lengths = list(map(len, keys))
    columns = (compiled.slot_attributes, compiled.key_texts[0], lengths, compiled.k_max, ends)
    slots = [slot(*row) for row in zip(*columns, strict=False)]
    for leaf, k_max, _, spec in _first_items(compiled.fields):
        if spec.copying is not None:
            copied.add(leaf.path)
        key = compiled.format.key(leaf.labels, None)
        length = len(compiled.codec.encode(key))
        slots.append(slot(leaf, key, length, k_max, ends[0] - lengths[0] + length))
    return slots


def _first_items(
    fields: Fields | None,
) -> Iterator[tuple[Attribute, int, Mapping[Path, Path], SlotSpec]]:
    """Yields the leaves of lists' first items: leaf, budget, labels of its neighbours, spec."""
    for items in filter(None, fields.items if fields else ()):
        leaves = [segment.attribute for segment in items.segments]
        beside = {path: leaf.labels for path, leaf in zip(items.paths, leaves, strict=True)}
        for leaf, k_max, spec in zip(leaves, items.k_max, items.specs, strict=True):
            yield leaf, k_max, beside, spec
        yield from _first_items(items)


def _steps(fields: Fields) -> int:
    longest: dict[int, int] = {}  # of each wave
    waves = waves_of(fields.paths, [segment.declared.after for segment in fields.segments])
    for budget, items, wave in zip(fields.k_max, fields.items, waves, strict=True):
        budget += _steps(items) if items is not None else 0
        longest[wave] = max(budget, longest.get(wave, 0))
    return sum(longest.values())


def _stop_in_words(rule: StopRule) -> str:
    if isinstance(rule, JsonLiteralStop):
        return (
            "where the JSON literal is complete: a string with its closing quote, a list with its "
            "bracket, null, true and false with their last letter, anything else before a comma, "
            "a line break or a closing brace"
        )
    if isinstance(rule, JsonObjectStop):
        return "where the root object closes"
    if isinstance(rule, StopAt):
        if rule.delimiter == b"\n":
            return "at the end of the line"
        return f"where {rule.delimiter.decode(errors='backslashreplace')!r} has been written"
    return f"where {type(rule).__name__}, a rule of the format, is met"


def _autoregressive_steps(compiled: CompiledSchema) -> int | None:
    try:
        baseline = compile_schema(
            compiled.schema, compiled.codec, format=compiled.format, decoding="autoregressive"
        )
    except SchemaError:
        return None
    return baseline.k_max[0]


_VALUE_TOKENS = 2

_SKELETON = (
    "Keys: all stand in one skeleton, which every later token sees. After each key its slot's "
    "k_max position ids are left free for the value."
)
_LAYOUTS = {
    "branched": "Keys: every key starts right after the prompt, in a branch of its own. Branches "
    "share position ids and see nothing of each other.",
    "autoregressive": "Keys: none are given. The model writes keys and values, one token after "
    "the other, and sees all that it has written.",
}
_DOCUMENTS = {
    "isolated": "Documents: each sees the instruction and itself. Positions restart after the "
    "instruction.",
    "stacked": "Documents: all share one sequence, and the outputs see all of them.",
}
_SLOTS = {
    "independent": "Slots: a value sees the prompt, its key and its own tokens, never another "
    "value.",
    "causal": "Slots: the k-th token of a value also sees the first k tokens of the values "
    "before it.",
}


def sentences(config: DecodingConfig) -> tuple[str, ...]:
    """Returns the rule of visibility for these settings, in words."""
    if config.layout == "autoregressive":
        return (_LAYOUTS[config.layout],)
    return (
        _LAYOUTS.get(config.layout, _SKELETON),
        _DOCUMENTS[config.documents],
        _SLOTS[config.slots],
    )


def picture(config: DecodingConfig) -> dict[str, Any]:
    """Returns the rule of visibility for a document of three slots, or two documents of two slots.

    sees[q][k]: True if token q sees token k; `labels` names the tokens. I, D, S and every key are
    one token each; values have two tokens.
    """
    import torch  # takes seconds, and is needed only here

    from schemax.runtime.attention.visibility import TokenInfo, visible

    writes_keys = config.layout == "autoregressive"
    documents = ("a", "b") if config.documents == "stacked" else ("",)
    numbers = ("",) if writes_keys else ("1", "2") if documents[1:] else ("1", "2", "3")
    prompt = PromptIds(
        instruction=(0,),
        documents=((0,),) * len(documents),
        opening=(0,),
        keys=((() if writes_keys else (0,),) * len(numbers),) * len(documents),
        k_max=(_VALUE_TOKENS + 1,) * len(numbers),
        sampling_keys=(0,) * len(documents),
    )
    plan = plan_prompt(prompt, config)
    filled = with_values(plan, [(0,) * _VALUE_TOKENS] * len(plan.slot_ids))
    shown = [f"D{j + 1}" for j in range(len(documents))] if documents[1:] else ["D"]
    slots = [document + number for document in documents for number in numbers]
    slots = slots[: len(plan.slot_ids)]
    labels = ["I", *shown, "S", *([] if writes_keys else [f"k{slot}" for slot in slots])]
    for slot in slots:
        value = "w" if writes_keys else f"v{slot}."
        labels += [f"{value}{step + 1}" for step in range(_VALUE_TOKENS)]
    # Values are shown right behind their keys, not at their places in the sequence.
    after = [*range(len(plan.input_ids)), *plan.last_index.repeat(_VALUE_TOKENS)]
    order = sorted(range(len(labels)), key=after.__getitem__)
    integers = (filled.position_ids, filled.document, filled.slot, filled.step)
    position, owner, branch, step = (torch.from_numpy(row[order])[None] for row in integers)
    tokens = TokenInfo(position, owner, branch, step, torch.ones_like(step, dtype=torch.bool))
    sees = visible(tokens, tokens, config)[0].tolist()
    return {"labels": [labels[at] for at in order], "sees": sees}


def lines(picture: Mapping[str, Any]) -> list[str]:
    """Returns the matrix as text: a row per query token, a column per token that is seen."""
    width = max(map(len, picture["labels"]))
    rows = [("", picture["labels"])]
    for label, row in zip(picture["labels"], picture["sees"], strict=True):
        rows.append((label, ["■" if seen else "·" for seen in row]))
    return [" ".join(cell.rjust(width) for cell in (label, *cells)) for label, cells in rows]
