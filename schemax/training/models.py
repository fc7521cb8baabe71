"""Models to train: with random weights, with adapters, and with the mask of decoding."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
)

from schemax.base.resources import fetched
from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.extraction.extractor import Extractor
from schemax.runtime.attention.visibility import TokenInfo
from schemax.runtime.models.loading.refusals import need, refusing
from schemax.runtime.models.loading.rounding import merge_adapters
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.models.packed import unpack
from schemax.training.row_attention import over_rows, parts_of
from schemax.training.schedule import TrainingBatch, token_info
from schemax.training.sequences import IGNORE
from schemax.training.settings import TrainingSettings

EXTRA = "'.[train]' in a checkout of schemax"


class TrainableModel(DecoderModel):
    """A model that trains as it decodes: same positions, same masks, logits of labels alone.

    Raises ModelError for models that in-sequence decoding cannot serve.
    """

    def loss(
        self, wrapped: Any, batch: TrainingBatch, config: DecodingConfig
    ) -> tuple[Tensor, Tensor]:
        """Returns the cross entropy, summed over all labels of a batch, and their number.

        wrapped: the model itself, or adapters or a distributed wrapper around it.
        """
        rows, columns = (batch["labels"] != IGNORE).nonzero(as_tuple=True)
        logits = self.logits(wrapped, batch, (rows, columns), config)
        targets = batch["labels"][rows, columns]
        summed = functional.cross_entropy(logits.float(), targets, reduction="sum")
        return summed, (targets != IGNORE).sum()

    def logits(
        self,
        wrapped: Any,
        batch: TrainingBatch,
        places: tuple[Tensor, Tensor],
        config: DecodingConfig,
    ) -> Tensor:
        """Returns (S, V) logits at S places (rows, columns), without a lock: one thread trains."""
        tokens = token_info(batch)
        rows = self.rows_of(tokens, config)
        self._selection.local.places = places
        try:
            with rows or nullcontext():
                output = wrapped(
                    input_ids=batch["input_ids"],
                    position_ids=tokens.position_ids,
                    attention_mask=self._stand_ins() if rows else self._masks(tokens, config),
                    use_cache=False,
                )
        finally:
            self._selection.local.places = None
        logits: Tensor = output.logits[0]
        return logits

    def rows_of(
        self, tokens: TokenInfo, config: DecodingConfig
    ) -> AbstractContextManager[None] | None:
        """Returns a context of attention by rows; None if the dense mask is used.

        GPUs keep the mask: their kernels need no memory for scores.
        """
        dropout = getattr(self.config, "attention_dropout", 0.0)
        if (
            tokens.real.device.type != "cpu"
            or self.config._attn_implementation != "sdpa"
            or dropout
        ):
            return None
        parts = parts_of(tokens, config, self.windows)
        return None if parts is None else over_rows(self.config, parts)


def trainable(extractor: Extractor, name: str, settings: TrainingSettings) -> TrainableModel:
    """Returns the extractor's model for training. Raises ModelError if it cannot be trained."""
    if not isinstance(extractor.model, DecoderModel):
        raise ModelError(
            f"{name} depends on the order of tokens (recurrent layers, ALiBi), so all values of a "
            "document cannot be trained in one pass; train such a model with other tools"
        )
    model = extractor.model.model
    if getattr(model, "is_quantized", False) and settings.quantization is None:
        raise ModelError(
            f"{name} is quantized, and quantized weights cannot be trained; name the model that it "
            "was made from, or train adapters with quantization nf4"
        )
    unpack(model)
    return TrainableModel(model)


def new_model(config: str, tokenizer: str | None, seed: int) -> tuple[Any, Any]:
    """Returns (model, tokenizer): random float32 weights, on the CPU.

    config: a config.json, or a folder or Hub id with a config.
    tokenizer: the model whose tokenizer is used; None: the config's. Never runs remote code.

    Raises ModelError for a config that cannot be read or does not describe a causal language
    model.
    """
    path = Path(config)
    source = str(path.parent) if path.is_file() else config
    with refusing(config):
        settings = AutoConfig.from_pretrained(str(fetched(config)), trust_remote_code=False)
    if type(settings) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"{config} has the model type {settings.model_type!r}, which is not a decoder"
        )
    torch.manual_seed(seed)
    with refusing(config):
        model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            settings, dtype=torch.float32, trust_remote_code=False
        )
    name = tokenizer or source
    with refusing(name):
        return model, AutoTokenizer.from_pretrained(str(fetched(name)), trust_remote_code=False)


def add_lora(model: Any, settings: TrainingSettings, name: str) -> Any:
    """Returns peft's wrapper of the model, which trains adapters alone.

    The output head and the embeddings get no adapters, unless `lora_targets` names them.
    name: the base model, which a kept adapter refers to. Raises ModelError without peft, and for
    targets that the model lacks.
    """
    rank, targets = settings.lora or 1, settings.lora_targets
    need("peft", name, "LoRA", EXTRA)
    with refusing(name, "cannot be given adapters"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft = import_module("peft")
        if settings.quantization is not None:
            model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        config = peft.LoraConfig(
            r=rank,
            lora_alpha=settings.lora_alpha or 2 * rank,
            lora_dropout=settings.lora_dropout,
            target_modules=targets if isinstance(targets, str) else list(targets),
            task_type="CAUSAL_LM",
            base_model_name_or_path=name,
        )
        return peft.get_peft_model(model, config)


def merge_lora(tuned: Any, keep: Path | None) -> Any:
    """Returns the base model with the adapters merged into its weights.

    keep: a folder that the adapters are also written to, or None.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if keep is not None:
            tuned.save_pretrained(keep)
        return merge_adapters(tuned)
