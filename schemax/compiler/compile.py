"""`compile_schema`: schema x format x template x tokenizer x layout -> `CompiledSchema`.

Data flows once: attributes and examples, the skeleton, the prompt, slots with their grammars.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from schemax.attributes import Attribute, compile_attributes, settings_of
from schemax.attributes.attributes import named_misfits
from schemax.attributes.examples import FewShotExample, example_values
from schemax.base.messages import warn
from schemax.compiler.automata import checked_eos_ids, compile_stop
from schemax.compiler.choices import with_key
from schemax.compiler.compiled_schema import CompiledSchema
from schemax.compiler.grammars import output_schema
from schemax.compiler.nearest import MARKED_EXAMPLE, cut_at_example
from schemax.compiler.prompt import (
    PromptText,
    ShownExample,
    TemplateLike,
    control_token_warning,
    read_template,
    render_prompt,
    usual_template,
    with_generic_demonstration,
    written_examples,
)
from schemax.compiler.skeleton import (
    as_decoded,
    check_names,
    key_texts,
    odd_boundaries,
    segments_of,
    skeleton_text,
)
from schemax.compiler.slot_specs import SlotCompiler
from schemax.compiler.tokenizer import ByteCodec, TextCodec, as_codec
from schemax.compiler.waves import Waves
from schemax.config import DecodingConfig, resolve_decoding
from schemax.errors import ModelError, SchemaWarning
from schemax.formats import NEWLINE, DocumentKey, OutputFormat, get_format
from schemax.tokens import Ids, SlotSpec


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
    generic_demonstration: bool = False,
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
    generic_demonstration: whether a demonstration of another category precedes an instruction
        without turns, if the chat template takes turns.

    Raises SchemaError, TemplateError, ModelError; ValueError for an unknown format or preset;
    InputError, naming it, for an example that does not fit the schema.
    """
    settings = settings_of(schema)
    values = example_values(examples, schema, compile_attributes(schema)) if examples else []
    output_format = get_format(format or settings.format or "json")
    config = resolve_decoding(decoding)
    codec = as_codec(tokenizer)
    size = vocab_size or codec.vocab_size
    eos_ids = checked_eos_ids(codec.eos_ids if eos_ids is None else eos_ids, size)
    # As text: instances need not be hashable.
    shown = written_examples(values, schema, output_format, config) if examples else ()
    # The contents of a path, not its name: an edit of the template must show.
    source = read_template(template or settings.template or usual_template(config))
    declared: Any = schema
    return _compile(
        declared, codec, output_format, source, config, eos_ids, size, shown, generic_demonstration
    )


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
    generic_demonstration: bool,
) -> CompiledSchema:
    name, category = schema.__name__, settings_of(schema).category
    declared = compile_attributes(schema)
    is_whole = config.layout == "autoregressive"
    stacked = config.documents == "stacked"

    attributes = as_decoded(name, declared, config, output_format)
    check_names(name, attributes, output_format)
    segments = segments_of(attributes, output_format, config)
    texts = [[""]] if is_whole else key_texts(segments, output_format, config)
    blank = skeleton_text(attributes, output_format, (DocumentKey("1"),) if stacked else ())
    odd = () if is_whole else odd_boundaries(texts[0], segments, output_format, codec)
    keys = tuple(tuple(tuple(codec.encode(text)) for text in row) for row in texts)

    render = partial(
        render_prompt,
        template,
        category=category,
        attributes=attributes,
        format_name=output_format.name,
        keys_given=not is_whole,
        num_documents=config.documents_per_prompt if stacked else None,
        codec=codec,
    )
    nearest = None
    if config.nearest_examples and examples:
        prompt, nearest = cut_at_example(
            render(examples=(MARKED_EXAMPLE,)), examples, config.nearest_examples, codec
        )
    else:
        prompt = render(examples=examples)
        if generic_demonstration:
            prompt = with_generic_demonstration(prompt, output_format, config, codec)
    if prompt.control_tokens:
        warn(control_token_warning(prompt.control_tokens))
    instruction, opening, pieces = _prompt_ids(prompt, output_format, codec)
    if (largest := max((*instruction, *opening), default=0)) >= vocab_size:
        raise ModelError(
            f"the prompt holds the token {codec.text_of([largest])!r}, which the model has no "
            "embedding for; name the tokenizer that the model was trained with"
        )

    rule = NEWLINE if config.ends_with_line else output_format.stop
    compiler = SlotCompiler(name, output_format, config, codec, vocab_size, eos_ids, rule)
    fields = waves = None
    slots: tuple[SlotSpec, ...] = ()
    if is_whole:
        rule = output_format.end
        budgets: Ids = (len(codec.encode(blank)) + sum(map(compiler.budget, attributes)),)
        if isinstance(codec, ByteCodec) and output_format.name == "json":
            slots = (SlotSpec(json_schema=output_schema(attributes)),)
    else:
        fields = compiler.fields(segments)
        budgets = fields.k_max
        slots = tuple(map(with_key, fields.specs, keys[0]))
        if config.max_repairs or any(map(_looks_at_others, attributes)):
            waves = Waves.of(fields, compiler, keys[0])
    stop = compile_stop(rule, codec, eos_ids, vocab_size)

    for path, misfit in named_misfits(declared):
        warn(SchemaWarning(name, path, misfit))
    return CompiledSchema(
        schema=schema,
        category=category,
        attributes=attributes,
        slot_attributes=tuple(segment.attribute for segment in segments),
        format=output_format,
        decoding=config,
        codec=codec,
        prompt=prompt,
        instruction=instruction,
        opening=opening,
        pieces=pieces,
        keys=keys,
        key_texts=tuple(map(tuple, texts)),
        k_max=budgets,
        slots=slots,
        stop=stop,
        stop_rule=rule,
        odd_boundaries=odd,
        waves=waves,
        nearest=nearest,
        fields=fields,
    )


def _prompt_ids(
    prompt: PromptText, output_format: OutputFormat, codec: TextCodec
) -> tuple[Ids, Ids, tuple[tuple[Ids, ...], ...]]:
    """The ids of a prompt: instruction, opening of the output, literals around documents."""
    stem: list[int] = []
    for markup, content in (*prompt.chat.turns, (prompt.chat.prefix, prompt.instruction)):
        stem += codec.encode_message(markup, content, stem)
    is_chat = bool(prompt.chat.prefix or prompt.chat.turns)
    # Encoded together, as the model writes an answer: `[/INST] {` has other tokens than its parts.
    answer = prompt.chat.suffix + output_format.opening()
    opening = (
        *codec.encode(prompt.closing),
        *(codec.encode_markup(answer, None) if is_chat else codec.encode(answer)),
    )
    pieces = tuple(
        tuple(tuple(codec.encode(text)) for text in literals) for literals in prompt.pieces
    )
    return (*(() if is_chat else codec.prefix_ids), *stem), opening, pieces


def _looks_at_others(attribute: Attribute) -> bool:
    return bool(attribute.after) or any(map(_looks_at_others, attribute.fields))
