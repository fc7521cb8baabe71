"""How a model is loaded, wherever one is named."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from schemax.commands.option_groups import option


@dataclass(frozen=True, slots=True)
class LoadingOptions:
    """Loading the model"""

    adapter: str | None = option(
        "Folder or Hub id of a LoRA adapter for the model.", metavar="ADAPTER"
    )
    revision: str | None = option("Of a model on the Hub: branch, tag or commit.")
    quantization: Literal["nf4", "int8"] | None = option(
        "nf4 (4 bits a weight, CUDA) or int8 (8 bits, CUDA or CPU)."
    )
    device_map: str | None = option(
        "In place of --device, spreads the model over devices: auto, balanced, sequential."
    )
    attn: str | None = option("How attention is computed: sdpa or eager. Default: the model's.")

    def named(self) -> dict[str, Any]:
        """Those that were given, as `Extractor.from_pretrained` takes them."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        if "attn" in found:
            found["attn_implementation"] = found.pop("attn")
        return found
