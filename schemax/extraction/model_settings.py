"""Settings of a model, the defaults of a call: format, template, decoding, examples.

A model that was not trained to copy invents texts, and a prompt that asks for copies does not keep
it from that; of choices it takes those that its prompt makes likely. So models that schemax did not
train have defaults of their own. Which demonstrations such a model is shown, `demonstrations` says.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from schemax.attributes import settings_of
from schemax.attributes.examples import FewShotExample, FewShotExamples, too_long
from schemax.base.calibration import Calibration
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
from schemax.errors import InputError, ModelError
from schemax.extraction.demonstrations import usual_demonstrations
from schemax.extraction.labels import labelled_instance
from schemax.extraction.prompt_file import Demonstration, PromptFile
from schemax.extraction.stated import as_stated
from schemax.formats import OutputFormat
from schemax.runtime.slots.plan import plan_prompt
from schemax.servers.extraction import ExtractionModel
from schemax.servers.remote import RemoteModel, warn_of_copying


class ModelSettings:
    """A model with its settings, see `Extractor`: completes the settings of calls, and compiles
    schemas for the model."""

    model: Any
    tokenizer: Any
    format: str | OutputFormat | None
    template: TemplateLike | None
    decoding: DecodingConfig
    eos_ids: tuple[int, ...]
    calibration: Calibration
    trained: TrainedWith
    is_trained: bool
    prompt: PromptFile

    def compile(
        self,
        schema: type[Any],
        *,
        format: str | OutputFormat | None = None,
        template: TemplateLike | None = None,
        decoding: str | DecodingConfig | None = None,
        examples: Sequence[FewShotExample] | None = None,
    ) -> CompiledSchema:
        """Compiles a schema for this model; see `compile_schema` for what is raised.

        examples: None shows a model that schemax did not train the schema's usual demonstrations.
        """
        settings = settings_of(schema)
        config = self.decoding if decoding is None else resolve_decoding(decoding)
        if isinstance(self.model, ExtractionModel):
            format, template = format or self.format, template or self.template
            prompt = self.prompt if self.prompt != PromptFile() else None
            named = {"format": format, "template": template, "prompt": prompt}
            return self.model.compile(schema, config, examples=examples, **named)
        is_remote = isinstance(self.model, RemoteModel)
        config, template = self.settled(schema, config, template)
        if refusal := self.model.refusal(config):
            raise ModelError(refusal)
        leads = False
        if examples is None:
            examples = () if self.is_trained else usual_demonstrations(schema, template, config)
            leads = not (examples or self.is_trained or is_remote) and is_led(config, template)
        compiled = compile_schema(
            schema,
            self.tokenizer,
            format=format or self.prompt.format or settings.format or self.format,
            template=template,
            decoding=config,
            eos_ids=self.eos_ids,
            vocab_size=self.model.vocab_size,
            examples=examples,
            is_led=leads,
        )
        if is_remote:
            warn_of_copying(compiled)
        return compiled

    def settled(
        self,
        schema: type[Any],
        config: DecodingConfig | None = None,
        template: TemplateLike | None = None,
    ) -> tuple[DecodingConfig, TemplateLike]:
        """The decoding and the template of a call, completed by the model's settings; None for
        settings that the call does not name."""
        config = self.decoding if config is None else config
        template = template or self.named_template(schema) or usual_template(config)
        if isinstance(self.model, RemoteModel):  # which no decoding of ours holds to a document
            return config, template
        config = as_trained(config, self.trained.decoding)
        return config if self.is_trained else as_untrained(config, template), template

    def named_template(self, schema: type[Any]) -> TemplateLike | None:
        """The default template of a call: the prompt file's, else the schema's, else the model's;
        None means that of the decoding's preset."""
        return self.prompt.template or settings_of(schema).template or self.template

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
        return demonstrated(self.prompt, schemas)

    def check_room(
        self,
        compiled: CompiledSchema,
        examples: Sequence[FewShotExample] | None,
        settings: Mapping[str, Any],
    ) -> None:
        """Raises InputError, naming the first example that exceeds the model's context; if the
        prompt alone exceeds it, rows report the error."""

        if not examples:
            return

        def problem(found: CompiledSchema) -> str | None:
            (prompt,) = found.encode([""])
            fault: str | None = self.model.misfit(plan_prompt(prompt, found.decoding))
            return fault

        def is_too_long(count: int) -> bool:
            some = self.compile(compiled.schema, examples=examples[:count], **settings)
            return problem(some) is not None

        if problem(compiled) is None or is_too_long(0):
            return
        least = bisect_left(range(1, len(examples)), True, key=is_too_long)
        some = self.compile(compiled.schema, examples=examples[: least + 1], **settings)
        raise too_long(compiled.schema, examples, least, problem(some))


def as_untrained(config: DecodingConfig, template: TemplateLike) -> DecodingConfig:
    """The decoding held to the document, and with `contextual_calibration`, unless it sets them, if
    slots are constrained and the template asks for values as in the text (`verbatim`)."""
    if not config.is_held or not _is_verbatim(template):
        return config
    scored = config.contextual_calibration
    return replace(
        config,
        constrain=config.constrain or "document",
        contextual_calibration=True if scored is None else scored,
    )


def is_led(config: DecodingConfig, template: TemplateLike) -> bool:
    """True if a schema without demonstrations gets one of another category, as turns of a chat."""
    is_alone = config.documents == "isolated" and config.layout != "autoregressive"
    return is_alone and _is_verbatim(template)


def _is_verbatim(template: TemplateLike) -> bool:
    if not isinstance(template, str | Path):
        return False
    return template_source(template) == template_source(DEFAULT_TEMPLATE)


def demonstrated(
    prompt: PromptFile, schemas: type[Any] | Mapping[str, type[Any]]
) -> FewShotExamples | None:
    """The examples of a schema, or of several by category; None where the file has none of them.

    Categories are compared without regard to case; a single schema has the one it declares.
    Raises InputError, naming the demonstration, for one that does not fit its schema.
    """
    if not prompt.demonstrations:
        return None
    if not isinstance(schemas, Mapping):
        return _of_category(prompt, settings_of(schemas).category, schemas) or None
    found = {name: _of_category(prompt, name, schema) for name, schema in schemas.items()}
    return {name: shown for name, shown in found.items() if shown} or None


def _of_category(prompt: PromptFile, category: str, schema: type[Any]) -> list[FewShotExample]:
    return [_example(called, one, schema) for called, one in prompt.of_category(category)]


def _example(called: str, shown: Demonstration, schema: type[Any]) -> FewShotExample:
    try:
        stated = {name: as_stated(value) for name, value in shown.attributes.items()}
    except ValueError as error:
        raise InputError(f"document {called}: {error}") from error
    return shown.text, labelled_instance(called, shown.category, stated, schema)
