"""`Defaults`: the settings of a model for calls that do not name them, and its demonstrations.

A model that was not trained to copy invents texts, and a prompt that asks for copies does not
prevent this; it prefers choices that its prompt makes likely. A few documents with their values
teach it more than any instruction. So models that schemax did not train have defaults of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from schemax.attributes import Attribute, compile_attributes, settings_of
from schemax.attributes.examples import FewShotExample, FewShotExamples, SomeValues
from schemax.attributes.ready_made import demonstrations_of, match_of, words_of
from schemax.base.calibration import Calibration, Promise
from schemax.base.messages import some_of, warn
from schemax.base.trained import TrainedWith, as_trained
from schemax.compiler import CompiledSchema, compile_schema
from schemax.compiler.prompt import (
    DEFAULT_TEMPLATE,
    Conversation,
    TemplateLike,
    template_source,
    usual_template,
)
from schemax.config import DecodingConfig, resolve_decoding
from schemax.errors import ModelError
from schemax.extraction.prompt_file import PromptFile
from schemax.extraction.readout import optional_fields
from schemax.formats import OutputFormat
from schemax.servers.extraction import ExtractionModel
from schemax.servers.remote import RemoteModel, warn_of_copying


@dataclass(frozen=True, slots=True)
class Defaults:
    """The settings of a model for calls that do not name them.

    format, template: used if neither the call, the prompt file nor the class names one.
    calibration: the interpretation of the model's probabilities.
    prompt: the prompt file, see `Extractor.with_prompt`.
    trained: the settings of training, if the model's folder states them.
    is_trained: True if schemax trained the model, or if somebody wrote a prompt for it:
        `prompt.jinja` or `schemax.json` in its folder. A prompt file changes only what it names.
    is_remote: True if a server decodes.
    scores_choices: False for a server that cannot score choices; see `RemoteModel`.
    """

    format: str | OutputFormat | None = None
    template: TemplateLike | None = None
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    calibration: Calibration = field(default_factory=Calibration)
    prompt: PromptFile = field(default_factory=PromptFile)
    trained: TrainedWith = field(default_factory=TrainedWith)
    is_trained: bool = False
    is_remote: bool = False
    scores_choices: bool = True

    def changed(
        self,
        prompt: PromptFile | None,
        *,
        format: str | OutputFormat | None,
        template: TemplateLike | None,
        decoding: str | DecodingConfig | None,
    ) -> Defaults:
        """The defaults with a prompt file, and with settings that come before the file's."""
        decoding = decoding or (prompt and prompt.decoding) or self.decoding
        named = replace(
            self,
            format=format or self.format,
            template=template or self.template,
            decoding=resolve_decoding(decoding),
        )
        if prompt is None:
            return named
        return replace(
            named,
            prompt=replace(
                prompt,
                format=None if format else prompt.format,
                template=None if template else prompt.template,
            ),
            calibration=prompt.calibration or self.calibration,
        )

    def named_format(self, schema: type[Any]) -> str | OutputFormat | None:
        """The default format of a call: the prompt file's, else the schema's, else the model's."""
        return self.prompt.format or settings_of(schema).format or self.format

    def named_template(self, schema: type[Any]) -> TemplateLike | None:
        """The default template of a call: the prompt file's, else the schema's, else the model's;
        None means that of the decoding's preset."""
        return self.prompt.template or settings_of(schema).template or self.template

    def decoding_and_template(
        self,
        schema: type[Any],
        config: DecodingConfig | None = None,
        template: TemplateLike | None = None,
    ) -> tuple[DecodingConfig, TemplateLike]:
        """The decoding and the template of a call, completed by the model's settings; None for
        settings that the call does not name."""
        config = self.decoding if config is None else config
        template = template or self.named_template(schema) or usual_template(config)
        if self.is_remote:  # no server holds texts to their document
            scored = as_untrained(config, template).contextual_calibration
            if self.scores_choices and not self.is_trained:
                config = replace(config, contextual_calibration=scored)
            return config, template
        config = as_trained(config, self.trained.decoding)
        return config if self.is_trained else as_untrained(config, template), template

    def chosen_examples(
        self, schemas: type[Any] | Mapping[str, type[Any]], options: Mapping[str, Any]
    ) -> FewShotExamples | None:
        """The examples that a call names, else the demonstrations of the prompt file.

        options: those of `stream`. Raises InputError for a demonstration that does not fit.
        """
        examples: FewShotExamples | None = options.get("examples")
        # A conversation shows what its client has written.
        if examples is not None or isinstance(options.get("template"), Conversation):
            return examples
        return self.prompt.examples(schemas)

    def compile(
        self,
        schema: type[Any],
        model: Any,
        tokenizer: Any,
        eos_ids: Sequence[int],
        *,
        format: str | OutputFormat | None = None,
        template: TemplateLike | None = None,
        decoding: str | DecodingConfig | None = None,
        examples: Sequence[FewShotExample] | None = None,
    ) -> CompiledSchema:
        """Compiles a schema for a model; see `compile_schema` for what is raised.

        examples: None shows a model that schemax did not train the schema's usual demonstrations.
        """
        config = self.decoding if decoding is None else resolve_decoding(decoding)
        if isinstance(model, ExtractionModel):
            return model.compile(
                schema,
                config,
                examples=examples,
                format=format or self.format,
                template=template or self.template,
                prompt=self.prompt if self.prompt != PromptFile() else None,
            )
        config, template = self.decoding_and_template(schema, config, template)
        if refusal := model.refusal(config):
            raise ModelError(refusal)
        generic_demonstration = False
        if examples is None:
            examples = () if self.is_trained else usual_demonstrations(schema, template, config)
            is_bare = not (examples or self.is_trained or self.is_remote)
            generic_demonstration = is_bare and gets_generic_demonstration(config, template)
        compiled = compile_schema(
            schema,
            tokenizer,
            format=format or self.named_format(schema),
            template=template,
            decoding=config,
            eos_ids=eos_ids,
            vocab_size=model.vocab_size,
            examples=examples,
            generic_demonstration=generic_demonstration,
        )
        if isinstance(model, RemoteModel):
            warn_of_copying(compiled)
        if promise := self.calibration.promise:
            _warn_of_unproven(compiled, promise)
        return compiled


def _warn_of_unproven(compiled: CompiledSchema, promise: Promise) -> None:
    """Warns of fields without labels in the calibration, which it promises nothing of."""
    proven, attributes = promise.fields.get(compiled.category, {}), compiled.attributes
    fields = zip(attributes, optional_fields(compiled.schema, attributes), strict=True)
    names = [a.name for a, is_optional in fields if is_optional and a.name not in proven]
    if names:
        warn(
            f"{compiled.category}: the calibration had no labels of {some_of(names)}, so it does "
            f"not promise their precision of {promise.precision:g}; calibrate on labels of them"
        )


def as_untrained(config: DecodingConfig, template: TemplateLike) -> DecodingConfig:
    """The decoding held to the document, and with `contextual_calibration`, unless it sets them, if
    slots are constrained and the template asks for values as in the text (`verbatim`).

    So is the decoding of a conversation, whose last message is the document; its choices are not
    scored, since every other conversation would cost further passes.
    """
    is_conversation = isinstance(template, Conversation)
    if not config.is_held or not (is_conversation or _is_verbatim(template)):
        return config
    is_scored = config.contextual_calibration
    return replace(
        config,
        constrain=config.constrain or "document",
        contextual_calibration=not is_conversation if is_scored is None else is_scored,
    )


def gets_generic_demonstration(config: DecodingConfig, template: TemplateLike) -> bool:
    """True if a schema without demonstrations gets the generic one, as turns of a chat."""
    is_alone = config.documents == "isolated" and config.layout != "autoregressive"
    return is_alone and _is_verbatim(template)


def _is_verbatim(template: TemplateLike) -> bool:
    if not isinstance(template, str | Path):
        return False
    return template_source(template) == template_source(DEFAULT_TEMPLATE)


def usual_demonstrations(
    schema: type[Any], template: TemplateLike, config: DecodingConfig
) -> Sequence[FewShotExample]:
    """The schema's own demonstrations, else those of the ready-made schema of its category.

    A ready-made schema's demonstrations show only fields that both declare. Returns () if these are
    fewer than half, or not all while the model writes the keys; and if the template cannot show
    examples, or the decoding cannot show lists of nested models.
    """
    attributes = compile_attributes(schema)
    cannot_show = any(item.fields for item in attributes) and not config.is_branched
    if cannot_show or not _shows_examples(template):
        return ()
    settings = settings_of(schema)
    if settings.demonstrations is not None:
        return settings.demonstrations
    match = match_of(settings.category)
    if match is None:
        return ()
    shown = [
        (text, SomeValues(fitting))
        for text, values in demonstrations_of(match[0])
        if (fitting := _values_of(attributes, text, values))
    ]
    if config.layout == "autoregressive":
        is_whole = all(len(values.values) == len(attributes) for _, values in shown)
        return shown if is_whole else ()
    known = {name for _, values in shown for name in values.values}
    return shown if 2 * len(known) >= len(attributes) else ()


def _shows_examples(template: TemplateLike) -> bool:
    return isinstance(template, str | Path) and "examples" in template_source(template)


def _values_of(
    attributes: Sequence[Attribute], text: str, values: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of a ready-made schema by the names of the attributes that mean the same."""
    by_words = {words_of(name): value for name, value in values.items()}
    fitting = {}
    for attribute in attributes:
        for name in (attribute.name, attribute.labels[-1]):
            value = by_words.get(words_of(name), ())
            if _fits(attribute, value, text):
                fitting[attribute.name] = value
    return fitting


def _fits(attribute: Attribute, value: Any, text: str) -> bool:
    """True if a value may stand for an attribute; () may not."""
    if attribute.fields or attribute.members or attribute.positions:
        return False
    if attribute.is_list:
        items = value if isinstance(value, list) else [()]
        return value is None or all(_is_one(attribute, item, text) for item in items)
    return (value is None and attribute.nullable) or _is_one(attribute, value, text)


def _is_one(attribute: Attribute, value: Any, text: str) -> bool:
    if attribute.choices:
        return value in attribute.choices
    if attribute.is_text:
        return isinstance(value, str) and value in text
    if attribute.kind == "boolean":
        return isinstance(value, bool)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # In the unit of the text, which the field's unit is read from.
    return is_number and attribute.is_number and f"{value:g}" in text
