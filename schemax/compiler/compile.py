"""`compile_schema`: schema x format x template x tokenizer x layout -> `CompiledSchema`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jinja2

from schemax.attributes import Attribute, compile_attributes, settings_of
from schemax.attributes.attributes import named_misfits
from schemax.base.messages import warn
from schemax.compiler.byte_codec import ByteCodec
from schemax.compiler.choices import with_key
from schemax.compiler.compiled_schema import CompiledSchema
from schemax.compiler.conversation import Conversation
from schemax.compiler.few_shot import FewShotExample, led, written_examples
from schemax.compiler.list_slots import as_decoded, asked_of, asked_of_items, budget_of, fields_of
from schemax.compiler.nearest import cut_at_example
from schemax.compiler.output_schema import output_schema
from schemax.compiler.prompt import (
    PromptText,
    ShownExample,
    TemplateLike,
    is_template_text,
    render_conversation,
    render_prompt,
    template_source,
    usual_template,
)
from schemax.compiler.skeleton import check_boundaries, check_names, key_texts, skeleton_text
from schemax.compiler.slot_specs import Compiling
from schemax.compiler.spelt_tokens import control_token_warning
from schemax.compiler.stops import checked_eos_ids, compile_stop
from schemax.compiler.tokenizer import TextCodec, as_codec
from schemax.compiler.waves import Waves
from schemax.config import DecodingConfig, resolve_decoding
from schemax.errors import SchemaWarning, TemplateError
from schemax.formats import (
    NEWLINE,
    DocumentKey,
    OutputFormat,
    get_format,
)
from schemax.tokens import SlotSpec

Ids = tuple[int, ...]


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
    format, template: None takes what the class declares, else "json" and `usual_template`.
    eos_ids: ids that end a slot; None takes the tokenizer's own.
    vocab_size: the model's, where it is larger than the tokenizer's.
    examples: (text, instance) pairs that the instruction shows, written as outputs are; a mapping
        that validates stands for an instance.
    is_led: whether a demonstration of another category precedes the instruction, where the chat
        template takes turns and the prompt has none.

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
        # The contents of a path, not its name: an edit of the template must show.
        _source(template or settings.template or usual_template(config)),
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
    fields = waves = None
    autoregressive = config.layout == "autoregressive"
    if autoregressive:
        texts = [[""]]
        head = (DocumentKey("1"),) if stacked else ()
        skeleton = skeleton_text(attributes, output_format, head)
        values = sum(budget_of(attribute, compiling) for attribute in attributes)
        budgets: tuple[int, ...] = (len(codec.encode(skeleton)) + values,)
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
        fields = fields_of(attributes, compiling)
        slots, budgets = fields.specs, fields.k_max
    keys = tuple(tuple(tuple(codec.encode(text)) for text in row) for row in texts)
    turns = [
        token
        for markup, content in prompt.turns
        for token in (*codec.encode_markup(markup), *codec.encode(content))
    ]
    is_chat = bool(prompt.chat_prefix or turns)
    if fields is not None and (config.max_repairs or any(map(_looks_at_others, attributes))):
        waves = Waves.of(fields, compiling, keys[0])
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
        fields=fields,
    )


def _looks_at_others(attribute: Attribute) -> bool:
    return bool(attribute.after) or any(map(_looks_at_others, attribute.fields))
