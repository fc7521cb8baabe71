"""`compile_schema`: schema x format x template x tokenizer x layout -> `CompiledSchema`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jinja2
import numpy as np

from schemax.attributes import Attribute, compile_attributes, settings_of
from schemax.attributes.misfits import named_misfits
from schemax.compiler.byte_codec import ByteCodec
from schemax.compiler.choices import with_key
from schemax.compiler.conversation import Conversation
from schemax.compiler.extractive import DocumentSource
from schemax.compiler.few_shot import FewShotExample, written_examples
from schemax.compiler.known import Known, KnownSlot, known_slots
from schemax.compiler.lead import led
from schemax.compiler.lists import as_decoded, asked_of, asked_of_items, budget_of, specs_of
from schemax.compiler.nearest import NearestExamples, cut_at_example
from schemax.compiler.output_schema import output_schema
from schemax.compiler.prompt import (
    DEFAULT_TEMPLATE,
    PromptText,
    ShownExample,
    TemplateLike,
    clean_document,
    is_template_text,
    render_conversation,
    render_prompt,
    template_source,
)
from schemax.compiler.skeleton import check_boundaries, check_names, key_texts, skeleton_text
from schemax.compiler.slot_specs import Compiling
from schemax.compiler.spelt_tokens import control_token_warning
from schemax.compiler.stops import checked_eos_ids, compile_stop
from schemax.compiler.tokenizer import TextCodec, as_codec
from schemax.compiler.waves import Fields, Waves, fields_of
from schemax.config import DecodingConfig, resolve_decoding
from schemax.errors import SchemaWarning, TemplateError
from schemax.formats import (
    NEWLINE,
    DocumentKey,
    OutputFormat,
    StopRule,
    get_format,
    split_at_stop,
)
from schemax.messages import warn
from schemax.tokens import PromptIds, SlotSpec, StopTable

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class CompiledSchema:
    """Everything that is known before a document is read. Inert: compile once, run many.

    prompt: the prompt's text, cut at the documents.
    instruction, opening: the ids of I and S.
    keys: (J, N) key segments; (1, N) for isolated documents, which all have the same.
    key_texts: the same as text.
    k_max: (N,) token budgets, delimiter included. For the autoregressive layout (1,): the budget
        of one document's whole output.
    asked: (N,) what the slots ask for: the attributes, of a list in two phases its count.
    slots: (N,) grammars, how null begins, and what a count calls for; () for the autoregressive
        layout, but for chats the schema of the output.
    stop, stop_rule: what ends a slot, over tokens and over bytes.
    odd_boundaries: attributes whose slot begins within what the tokenizer would merge.
    waves: what is asked once other slots are filled; None where all are asked at once, and none
        again. Keys are as if none looked at others.
    nearest: the examples of which every document is shown its own; None where all are shown to all.
    """

    schema: type[Any]
    category: str
    attributes: tuple[Attribute, ...]
    asked: tuple[Attribute, ...]
    format: OutputFormat
    decoding: DecodingConfig
    codec: TextCodec
    prompt: PromptText
    instruction: Ids
    opening: Ids
    keys: tuple[tuple[Ids, ...], ...]
    key_texts: tuple[tuple[str, ...], ...]
    k_max: tuple[int, ...]
    slots: tuple[SlotSpec, ...]
    stop: StopTable
    stop_rule: StopRule
    odd_boundaries: tuple[str, ...]
    waves: Waves | None = None
    nearest: NearestExamples | None = None

    @property
    def num_slots(self) -> int:
        """Slots per document: N, or 1 where the model writes the whole output itself."""
        return len(self.keys[0])

    def encode(self, texts: Sequence[str]) -> list[PromptIds]:
        """Prompts in order: of up to J documents each if these are stacked, else of one each.

        Raises InputError for a text that the tokenizer fails on.
        """
        stacked = self.decoding.documents == "stacked"
        stride = self.decoding.documents_per_prompt if stacked else 1
        cleaned = [clean_document(text, self.prompt.fence) for text in texts]
        encoded = [tuple(ids) for ids in self.codec.encode_batch(cleaned)]
        if (nearest := self.nearest) is not None:
            return [
                replace(self.assemble([ids]), demonstrations=nearest.of(text))
                for ids, text in zip(encoded, cleaned, strict=True)
            ]
        return [self.assemble(encoded[at : at + stride]) for at in range(0, len(encoded), stride)]

    def decode_slot(self, ids: Sequence[int]) -> tuple[str, bool]:
        """The text a slot was filled with, delimiter dropped, and whether its rule was met."""
        return _slot_text(self.stop_rule, self.codec, tuple(ids))

    def assemble(
        self, documents: Sequence[Ids], keys: Sequence[tuple[Ids, ...]] | None = None
    ) -> PromptIds:
        """Assembles a prompt of up to J documents that are already token ids.

        keys: (J, N) where fields look at others and values are known, see `known`: all fields are
            asked at once.
        """
        stacked = self.decoding.documents == "stacked"
        elements = []
        for j, ids in enumerate(documents):
            literals = self.prompt.pieces[j if stacked else 0]
            element = list(self._literal(literals[0]))
            for literal in literals[1:]:
                element += [*ids, *self._literal(literal)]
            elements.append(tuple(element))
        count = len(documents)
        is_slotted = self.decoding.layout != "autoregressive"
        prompt = PromptIds(
            instruction=self.instruction,
            documents=tuple(elements),
            opening=self.opening,
            keys=self.keys[:count] if stacked else self.keys * count,
            k_max=self.k_max if is_slotted else tuple(count * most for most in self.k_max),
            sampling_keys=tuple(_digest(ids) for ids in documents),
            slots=self.slots,
            sources=tuple(DocumentSource(ids, self.codec) for ids in documents)
            if is_slotted
            else (),
        )
        if self.waves is None:
            return prompt
        if keys is not None:
            return replace(prompt, keys=tuple(keys))
        opened, k_max, slots = self.waves.opened
        return replace(
            prompt,
            keys=opened * count,
            k_max=k_max,
            slots=slots,
            numbers=self.waves.fields.first,
            waves=self.waves,
        )

    def known(self, slots: Sequence[Known]) -> Iterator[KnownSlot]:
        """All slots of a document, those of items included, with their keys.

        slots: (N,) what is written into them. Of isolated documents in the layout `branched`.
        """
        return known_slots(_fields_of(self), slots, self.format, self.codec)

    def _literal(self, text: str) -> Ids:
        return _encode_cached(self.codec, text)


@lru_cache(maxsize=128)
def _fields_of(compiled: CompiledSchema) -> Fields:
    return fields_of(compiled.attributes, compiled.slots, compiled.k_max)


@lru_cache(maxsize=1024)
def _encode_cached(codec: TextCodec, text: str) -> Ids:
    return tuple(codec.encode(text)) if text else ()


@lru_cache(maxsize=65_536)
def _slot_text(rule: StopRule, codec: TextCodec, ids: Ids) -> tuple[str, bool]:
    # Kept, since "null" and the usual values are written again and again.
    data, complete = split_at_stop(rule, codec.decode_bytes(ids))
    return data.decode("utf-8", "replace"), complete


def _digest(ids: Ids) -> int:
    data = np.array(ids, "<u4").tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1


def compile_schema(
    schema: type[Any],
    tokenizer: Any,
    *,
    format: str | OutputFormat | None = None,
    template: TemplateLike | None = None,
    decoding: str | DecodingConfig | None = None,
    eos_ids: Sequence[int] | None = None,
    vocab_size: int | None = None,
    examples: Sequence[FewShotExample] = (),
    is_led: bool = False,
) -> CompiledSchema:
    """Compiles a declaration for one tokenizer. Frozen and cached; never imports torch.

    schema: an `AttrSchema`, or any Pydantic model.
    tokenizer: a `tokenizers.Tokenizer`, a fast tokenizer of transformers, or a folder that holds
        `tokenizer.json`.
    format, template: None takes what the class declares, else "json" and the decoding's template,
        or "verbatim".
    eos_ids: ids that end a slot; None takes the tokenizer's own.
    vocab_size: the model's, where it is larger than the tokenizer's.
    examples: (text, instance) pairs that the instruction shows, written as outputs are; a mapping
        that validates stands for an instance.
    is_led: whether a demonstration of another category stands before the instruction, where the
        chat template takes turns and the prompt has none.

    Raises SchemaError, TemplateError, ModelError; ValueError for an unknown format or preset;
    InputError, naming it, for an example that does not fit the schema.
    """
    codec = as_codec(tokenizer)
    settings = settings_of(schema)
    output_format = get_format(format or settings.format or "json")
    config = resolve_decoding(decoding)
    size = vocab_size or codec.vocab_size
    declared: Any = schema
    return _compile(
        declared,
        codec,
        output_format,
        # A path's contents, not its name: whoever edits a template expects to see the change.
        _source(template or settings.template or config.template or DEFAULT_TEMPLATE),
        config,
        checked_eos_ids(codec.eos_ids if eos_ids is None else eos_ids, size),
        size,
        # As text: instances need not be hashable.
        written_examples(examples, schema, output_format, config) if examples else (),
        is_led,
    )


def _prompt(template: TemplateLike, *, codec: TextCodec, **shown: Any) -> PromptText:
    if not isinstance(template, Conversation):
        return render_prompt(template, codec=codec, **shown)
    if shown["num_documents"] is not None or shown["examples"]:
        raise TemplateError("a conversation holds one document, and its own examples")
    return render_conversation(template, codec)


def _source(template: TemplateLike) -> TemplateLike:
    if isinstance(template, (jinja2.Template, Conversation)):
        return template
    source = template_source(template)
    return source if is_template_text(source) else f"{source}\n"


@lru_cache(maxsize=128)
def _compile(
    schema: type[Any],
    codec: TextCodec,
    output_format: OutputFormat,
    template: TemplateLike,
    config: DecodingConfig,
    eos_ids: Ids,
    vocab_size: int,
    examples: tuple[ShownExample, ...],
    is_led: bool,
) -> CompiledSchema:
    declared = compile_attributes(schema)
    for name, misfit in named_misfits(declared):
        warn(SchemaWarning(schema.__name__, name, misfit))
    attributes = as_decoded(schema.__name__, declared, config, output_format)
    asked = tuple(map(asked_of, attributes))
    check_names(schema.__name__, attributes, output_format)
    category = settings_of(schema).category
    stacked = config.documents == "stacked"
    num_documents = config.documents_per_prompt if stacked else 1
    render = partial(
        _prompt,
        template,
        category=category,
        attributes=attributes,
        format_name=output_format.name,
        keys_given=config.layout != "autoregressive",
        num_documents=num_documents if stacked else None,
        codec=codec,
    )
    nearest = None
    if config.nearest_examples and examples:
        prompt, nearest = cut_at_example(
            lambda shown: render(examples=shown), examples, config.nearest_examples, codec
        )
    else:
        prompt = render(examples=examples)
        prompt = led(prompt, output_format, config, codec) if is_led else prompt
    if prompt.control_tokens:
        warn(control_token_warning(prompt.control_tokens))
    rule = NEWLINE if config.stop == "newline" else output_format.stop
    name = schema.__name__
    compiling = Compiling(name, output_format, config, codec, vocab_size, eos_ids, rule)
    budgets = tuple(budget_of(attribute, compiling) for attribute in attributes)
    autoregressive = config.layout == "autoregressive"
    if autoregressive:
        texts = [[""]]
        head = (DocumentKey("1"),) if stacked else ()
        skeleton = skeleton_text(attributes, output_format, head)
        budgets = (len(codec.encode(skeleton)) + sum(budgets),)
        odd: tuple[str, ...] = ()
        slots: tuple[SlotSpec, ...] = ()
        if isinstance(codec, ByteCodec) and output_format.name == "json":
            slots = (SlotSpec(json_schema=output_schema(attributes)),)
        rule = output_format.end
    else:
        texts = key_texts(asked, output_format, config, num_documents)
        inner = list(asked_of_items(attributes))
        blanks = [*texts[0], *(output_format.key(item.labels, None) for item in inner)]
        odd = check_boundaries(blanks, [*asked, *inner], output_format, codec)
        slots = specs_of(attributes, compiling)
    keys = tuple(tuple(tuple(codec.encode(text)) for text in row) for row in texts)
    turns = [
        token
        for markup, content in prompt.turns
        for token in (*codec.encode_markup(markup), *codec.encode(content))
    ]
    is_chat = bool(prompt.chat_prefix or turns)
    waves = None
    if not autoregressive and (config.max_repairs or any(map(_looks_at_others, attributes))):
        waves = Waves.of(fields_of(attributes, slots, budgets), compiling, keys[0])
    prefix = codec.encode_markup(prompt.chat_prefix) if is_chat else codec.prefix_ids
    return CompiledSchema(
        schema=schema,
        category=category,
        attributes=attributes,
        asked=asked,
        format=output_format,
        decoding=config,
        codec=codec,
        prompt=prompt,
        instruction=(*turns, *prefix, *codec.encode(prompt.instruction)),
        opening=(
            *codec.encode(prompt.closing),
            *codec.encode_markup(prompt.chat_suffix),
            *codec.encode(output_format.opening()),
        ),
        keys=keys,
        key_texts=tuple(tuple(row) for row in texts),
        k_max=budgets,
        slots=tuple(with_key(*pair) for pair in zip(slots, keys[0], strict=False)),
        stop=compile_stop(rule, codec, eos_ids, vocab_size),
        stop_rule=rule,
        odd_boundaries=odd,
        waves=waves,
        nearest=nearest,
    )


def _looks_at_others(attribute: Attribute) -> bool:
    return bool(attribute.after) or any(map(_looks_at_others, attribute.fields))
