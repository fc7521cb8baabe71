"""The decoder's forward pass with gradients, through whatever a trainer wraps around the model."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

from schemax.config import DecodingConfig
from schemax.runtime.model import DecoderModel
from schemax.training.schedule import Batch, token_info
from schemax.training.sequences import IGNORE


class TrainableModel(DecoderModel):
    """A model that is trained as it decodes: same positions, same masks, logits where needed.

    Raises ModelError for models that in-sequence decoding cannot serve.
    """

    def loss(self, wrapped: Any, batch: Batch, config: DecodingConfig) -> tuple[Tensor, Tensor]:
        """Cross entropy, summed over all labels of a batch, and how many there are.

        wrapped: the model itself, or adapters or a distributed wrapper around it.
        """
        rows, columns = (batch["labels"] != IGNORE).nonzero(as_tuple=True)
        logits = self.logits(wrapped, batch, (rows, columns), config)
        targets = batch["labels"][rows, columns]
        summed = functional.cross_entropy(logits.float(), targets, reduction="sum")
        return summed, (targets != IGNORE).sum()

    def logits(
        self, wrapped: Any, batch: Batch, places: tuple[Tensor, Tensor], config: DecodingConfig
    ) -> Tensor:
        """(S, V) at the S places (rows, columns); no lock is held, since one thread trains."""
        tokens = token_info(batch)
        self._selection.local.places = places
        try:
            with self._chosen_rope(batch["long_rope"]):
                output = wrapped(
                    input_ids=batch["input_ids"],
                    position_ids=tokens.position_ids,
                    attention_mask=self._masks(tokens, config),
                    use_cache=False,
                )
        finally:
            self._selection.local.places = None
        logits: Tensor = output.logits[0]
        return logits
