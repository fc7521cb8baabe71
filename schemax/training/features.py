"""Features: training examples as token ids, with their sizes, ready to be packed into rows."""

from __future__ import annotations

import random
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from schemax.base.messages import some_of
from schemax.compiler import CompiledSchema
from schemax.compiler.prompt import clean_document
from schemax.errors import InputError
from schemax.extraction.labels import slot_text
from schemax.runtime.models.language_model import LanguageModel
from schemax.runtime.slots.outputs import exceeds
from schemax.runtime.slots.plan import Plan, plan_prompt
from schemax.tokens import Ids, PromptIds
from schemax.training.sequences import (
    ItemTarget,
    TrainingSequence,
    item_target,
    slot_targets,
    training_sequence,
)
from schemax.training.training_examples import TrainingExample


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """A training example as token ids.

    document: the ids of its text.
    literals: (N,) values as written in the output.
    keys: (N,) keys of branches, with the values that fields look at.
    chances: (N,) the probability that an epoch learns each value: 1 for annotated values.
    items: the slots of items of lists in two phases.
    tokens, extent: the numbers of its tokens and position ids in a row, behind the instruction.
    """

    name: str
    category: str
    document: Ids
    literals: tuple[str, ...]
    keys: tuple[Ids, ...]
    chances: tuple[float, ...]
    items: tuple[ItemTarget, ...]
    tokens: int
    extent: int


def make_features(
    examples: Iterable[TrainingExample],
    compiled: Mapping[str, CompiledSchema],
    model: LanguageModel,
    absent: float,
) -> dict[str, list[Features]]:
    """Returns features by category, one per example.

    absent: the probability that a value without an annotation is learnt as null.

    Leaves out documents that are too long for the model, and cuts values that are longer than their
    slot's budget; warns of both, with names. Raises InputError if no document is left.
    """
    features: dict[str, list[Features]] = {}
    notes: defaultdict[str, list[str]] = defaultdict(list)
    for example in examples:
        example_features = _features(example, compiled[example.category], model, absent, notes)
        if example_features is not None:
            features.setdefault(example.category, []).append(example_features)
    for problem, names in notes.items():
        warnings.warn(f"{len(names)} {problem}: {some_of(names)}", stacklevel=2)
    if not features:
        raise InputError("no document is left to train on")
    return features


def _features(
    example: TrainingExample,
    compiled: CompiledSchema,
    model: LanguageModel,
    absent: float,
    notes: defaultdict[str, list[str]],
) -> Features | None:
    """Returns an example's features, or None to leave it out. notes: problem -> examples."""
    text = clean_document(example.text, compiled.prompt.fence)
    document = tuple(compiled.codec.encode(text))
    slots = [
        slot_text(attribute, example.values.get(attribute.name), compiled.format)
        for attribute in compiled.attributes
    ]
    literals = tuple(slot.raw for slot in slots)
    known = list(compiled.known(slots)) if compiled.decoding.is_branched else []
    keys = tuple(slot.key for slot in known if not slot.is_further)
    items = tuple(item_target(compiled, slot) for slot in known if slot.is_further)
    prompt = compiled.assemble([document], [keys])
    plan = _with_items(plan_prompt(prompt, compiled.decoding), prompt, items)
    if problem := exceeds(plan.max_position, model.max_positions):
        notes["left out, too long for the model"].append(f"{example.name} ({problem})")
        return None
    chances = tuple(
        0.0
        if any(".".join(path) in example.unknown for path in attribute.after)
        else 1.0
        if attribute.name in example.values
        else absent
        if attribute.name not in example.unknown and (attribute.nullable or not attribute.required)
        else 0.0
        for attribute in compiled.attributes
    )
    if not any(chances):
        notes["left out, without a label to learn"].append(example.name)
        return None
    targets, _ = slot_targets(compiled, [literals], [(True,) * len(literals)])
    filled = [*zip(range(len(targets)), targets, compiled.k_max, strict=True)]
    filled += [(item.attribute_index, item.values, item.k_max) for item in items]
    for attribute_index, ids, budget in filled:
        ended = len(ids) < budget or ids[-1] in compiled.stop.eos_ids
        if not ended and not compiled.decode_slot(ids)[1]:
            of = compiled.attributes[attribute_index].label if len(targets) > 1 else "the output"
            note = "values exceed their budget (k_max) and are learnt in part"
            notes[note].append(f"{example.name}: {of}")
    instruction = len(prompt.instruction)
    return Features(
        name=example.name,
        category=example.category,
        document=document,
        literals=literals,
        keys=keys,
        chances=chances,
        items=items,
        tokens=len(plan.input_ids)
        - instruction
        + sum(len(ids) - 1 for ids in targets)
        + sum(len(item.key) + len(item.values) - 1 for item in items),
        extent=plan.max_position + 1 - instruction,
    )


def _with_items(plan: Plan, prompt: PromptIds, items: Sequence[ItemTarget]) -> Plan:
    """Returns the plan of a prompt with its items' largest position id."""
    start = int(plan.last_position[0]) - len(prompt.keys[0][0]) + 1
    reach = max((len(item.key) + item.k_max for item in items), default=0)
    return replace(plan, max_position=max(plan.max_position, start + reach - 1))


def fill_row(
    compiled: CompiledSchema, features: Sequence[Features], rng: random.Random | None
) -> TrainingSequence:
    """Returns the prompt of the documents, filled with their values.

    rng: chooses the values without annotation that are learnt; None: all with a chance above 0.
    """
    literals = [item.literals for item in features]
    documents = [item.document for item in features]
    prompt = compiled.assemble(documents, [item.keys for item in features])
    learnt = [
        [chance > (0.0 if rng is None else rng.random()) for chance in item.chances]
        for item in features
    ]
    values, flags = slot_targets(compiled, literals, learnt)
    return training_sequence(compiled, prompt, values, flags, [item.items for item in features])
