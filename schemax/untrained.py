"""How a model that schemax did not train is decoded where nobody says how.

A model that was not trained to copy invents texts, and a prompt that asks for copies does not keep
it from that. Which demonstrations such a model is shown, `schemax.demonstrations` says.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from schemax.compiler.prompt import DEFAULT_TEMPLATE, TemplateLike, template_source
from schemax.config import DecodingConfig


def as_untrained(config: DecodingConfig, template: TemplateLike | None) -> DecodingConfig:
    """The decoding with `extractive`, where it says nothing of that, has slots that are held to
    their types, and the template asks for values as they stand in the text (`verbatim`)."""
    is_held = config.constrain and config.layout != "autoregressive"
    if config.extractive is None and is_held and _is_verbatim(template):
        return replace(config, extractive=True)
    return config


def is_led(config: DecodingConfig, template: TemplateLike | None) -> bool:
    """Whether a schema without demonstrations gets one of another category, as turns of a chat."""
    is_alone = config.documents == "isolated" and config.layout != "autoregressive"
    return is_alone and _is_verbatim(template)


def _is_verbatim(template: TemplateLike | None) -> bool:
    if template is None or template == DEFAULT_TEMPLATE:
        return True
    if not isinstance(template, str | Path):
        return False
    return template_source(template) == template_source(DEFAULT_TEMPLATE)
