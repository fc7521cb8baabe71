"""Defaults for the decoding of a model that schemax did not train.

A model that was not trained to copy invents texts, and a prompt that asks for copies does not keep
it from that; of choices it takes those that its prompt makes likely. Which demonstrations such a
model is shown, `schemax.demonstrations` says.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from schemax.compiler.prompt import DEFAULT_TEMPLATE, TemplateLike, template_source
from schemax.config import LEFT_TO_MODELS, DecodingConfig


def as_untrained(config: DecodingConfig, template: TemplateLike | None) -> DecodingConfig:
    """The decoding with `extractive` and `contextual_calibration`, unless it sets them, if slots
    are constrained and the template asks for values as in the text (`verbatim`)."""
    is_held = config.constrain and config.layout != "autoregressive"
    if not is_held or not _is_verbatim(template):
        return config
    unsaid: dict[str, Any] = {
        name: True for name in LEFT_TO_MODELS if getattr(config, name) is None
    }
    return replace(config, **unsaid) if unsaid else config


def is_led(config: DecodingConfig, template: TemplateLike | None) -> bool:
    """True if a schema without demonstrations gets one of another category, as turns of a chat."""
    is_alone = config.documents == "isolated" and config.layout != "autoregressive"
    return is_alone and _is_verbatim(template)


def _is_verbatim(template: TemplateLike | None) -> bool:
    if template is None or template == DEFAULT_TEMPLATE:
        return True
    if not isinstance(template, str | Path):
        return False
    return template_source(template) == template_source(DEFAULT_TEMPLATE)
