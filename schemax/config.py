"""`DecodingConfig`: settings of layout and decoding, their presets, and the bounds of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Starts = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]]

Documents = Literal["isolated", "stacked"]
Slots = Literal["independent", "causal"]
Constrain = Literal["document", "types", "nothing"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a setting: numbers from `least` to `most`, both included.

    whole: integers only.
    or_zero: also 0, which is below `least`.
    """

    least: float
    most: float
    whole: bool = True
    or_zero: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raises ValueError, naming the setting, for any other value, NaN included."""
        if not isinstance(value, int if self.whole else int | float) or isinstance(value, bool):
            kind = "an integer" if self.whole else "a number"
            raise ValueError(f"{name} must be {kind}, not {value!r}")
        if not (self.least <= value <= self.most or (self.or_zero and value == 0)):
            also = "0, or " if self.or_zero else ""
            raise ValueError(
                f"{name} must be {also}from {self.least:,} to {self.most:,}, not {value!r}"
            )


BOUNDS: Mapping[str, Bounds] = MappingProxyType(
    {
        # decoding
        "documents_per_prompt": Bounds(1, 1_000),
        "nearest_examples": Bounds(0, 1_000),
        "k_max": Bounds(1, 1_000_000),
        "max_retries": Bounds(0, 16),  # each of which doubles a budget
        "max_repairs": Bounds(0, 1),
        "batch_size": Bounds(1, 1_000_000),
        "min_probability": Bounds(0, 1, whole=False),
        # Logits are divided by the temperature, and summed up to top_p, in single precision.
        "temperature": Bounds(0.001, 1_000, whole=False, or_zero=True),
        "top_p": Bounds(1e-6, 1, whole=False),
        "seed": Bounds(-(2**63), 2**64 - 1),
        # training
        "epochs": Bounds(1e-6, 1_000_000, whole=False),
        "steps": Bounds(1, 2**31),
        "learning_rate": Bounds(1e-12, 1_000, whole=False),
        "batch_tokens": Bounds(1, 2**31),
        "pack": Bounds(1, 1_000_000),
        "gradient_accumulation": Bounds(1, 1_000_000),
        "lora": Bounds(1, 65_536),
        "lora_alpha": Bounds(1e-6, 1_000_000, whole=False),
        "lora_dropout": Bounds(0, 0.99, whole=False),
        "absent": Bounds(0, 1, whole=False),
        "held_out": Bounds(0, 0.99, whole=False),
        "patience": Bounds(1, 2**31),
        "check_every": Bounds(1, 2**31),
    }
)
"""The bounds of every setting that is a number."""


def check_numbers(settings: Mapping[str, Any]) -> None:
    """Raises ValueError, naming it, for the first setting outside its bounds."""
    for name, value in settings.items():
        if name in BOUNDS:
            BOUNDS[name].check(name, value)


def _algorithm_2(lengths: NDArray[np.int64], budgets: NDArray[np.int64]) -> NDArray[np.int64]:
    lengths_with_gaps = lengths + budgets
    starts: NDArray[np.int64] = lengths_with_gaps.cumsum() - lengths_with_gaps
    return starts


SKELETONS: dict[str, Starts] = {"gapped": _algorithm_2}
"""The layouts of which all keys stand in one sequence; see `register_layout`."""
WITHOUT_SKELETON = ("branched", "autoregressive")
"""The other layouts."""


def register_layout(name: str, starts: Starts) -> None:
    """Registers a skeleton under a name that `DecodingConfig.layout` then takes, in this process.

    All keys stand in one sequence, as in Algorithm 2 of the paper (`gapped`), and later tokens see
    them; the layout says where each begins.

    starts: (S,) lengths of keys and (S,) token budgets of values, in the order of slots, to (S,)
        position ids of keys' first tokens, 0 right behind the output's opening. A key must begin
        behind the key before it and as many position ids as that one's budget, else extracting
        raises ValueError.

    Raises ValueError for a name that is taken.
    """
    if name in (*SKELETONS, *WITHOUT_SKELETON):
        raise ValueError(f"there is a layout {name!r} already")
    SKELETONS[name] = starts


@dataclass(frozen=True, slots=True)
class DecodingConfig:
    """The settings of one decoding run.

    layout: `gapped` is the paper's Algorithm 2 (one skeleton, a gap of `k_max` position ids after
        every key); `branched` starts every key right after the output's opening, which equals one
        request per attribute; `autoregressive` lets the model write keys and values in turn;
        `register_layout` adds others.
    documents: `isolated` documents see the instruction and themselves; `stacked` ones see each
        other, as in section 4.3.5 of the paper.
    slots: `independent` slots never see each other's values (equation 4); `causal` ones see the
        values of earlier slots up to their own step (section 4.4).
    documents_per_prompt: J, how many stacked documents share a prompt; isolated ones share nothing,
        whatever the number. Autoregressively, stacked documents are "batch prompting": the model
        writes all their outputs.
    nearest_examples: the number of examples that a document is shown: those with the texts most
        like its own. Each example is read once for all documents, and sees no other example
        (docs/prompts.md). 0 shows all examples to all documents. Requires isolated documents;
        servers, and models that decode one row per slot, refuse the setting.
    k_max: the token budget of a slot whose attribute has none; None derives it from the type.
    max_retries: how often the budget of a slot that ran out of it is doubled; the slot goes on in
        place, and no other slot sees what it then writes.
    max_repairs: how often a value that its type or a validator refuses is asked for again, with
        the reason (docs/dependent-fields.md): 0, or 1 in the layout `branched` with isolated
        documents.
    batch_size: documents in flight, or "auto".
    constrain: what slots are held to (docs/constraints.md). `types`: values fit their fields'
        types. `document`: texts that a slot writes also stand in its document, so that the model
        invents none. `nothing`: a slot holds whatever the model writes. None takes the setting of
        the model's folder; if that has none, it is `document` for a model that schemax did not
        train, under the template `verbatim`, else `types`. A slot ends where its literal is
        complete; only with `nothing` in the layout `gapped` it ends with its line (section 4.3.4).
        The autoregressive layout has no slots to constrain, and servers refuse `document`.
    min_probability: a less probable value becomes null, if its field may be null; None takes the
        model's own threshold (schemax.base.calibration), 0 keeps every value. Values of the
        autoregressive layout have no probability, so all of them are kept.
    contextual_calibration: whether a choice or boolean is scored against its probability in
        documents without content, so that no prompt favours it (docs/results.md). Probabilities are
        those that decided. Refused with `constrain="nothing"`, in the autoregressive layout and by
        servers. None calibrates models that schemax did not train, under the template "verbatim".
    temperature, top_p, seed: 0.0 is greedy; otherwise nucleus sampling whose random numbers depend
        on the seed, the document's text, the slot and the step, never on batch-mates.

    Raises ValueError for settings that contradict each other, and for numbers outside `BOUNDS`.
    """

    layout: str = "branched"
    documents: Documents = "isolated"
    slots: Slots = "independent"
    documents_per_prompt: int = 1
    nearest_examples: int = 0
    k_max: int | None = None
    max_retries: int = 1
    max_repairs: int = 0
    batch_size: int | Literal["auto"] = "auto"
    constrain: Constrain | None = None
    min_probability: float | None = None
    contextual_calibration: bool | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in (
            ("layout", (*SKELETONS, *WITHOUT_SKELETON)),
            ("documents", get_args(Documents)),
            ("slots", get_args(Slots)),
            ("constrain", get_args(Literal[Constrain, None])),
        ):
            if getattr(self, name) not in choices:
                allowed = ", ".join(map(repr, choices))
                raise ValueError(f"{name} must be one of {allowed}, not {getattr(self, name)!r}")
        if self.layout == "branched" and self.slots == "causal":
            raise ValueError(
                'layout="branched" needs slots="independent": its branches share position ids, '
                'so "earlier" has no meaning between them; use layout="gapped" for causal slots'
            )
        if self.layout == "autoregressive" and self.slots == "causal":
            raise ValueError(
                'layout="autoregressive" has no slots, because the model writes the whole output: '
                "leave slots at its default"
            )
        if self.max_repairs and not self.is_branched:
            raise ValueError(
                'max_repairs requires layout="branched" and documents="isolated" (the preset '
                '"isolated"), where a value can be asked for again by itself'
            )
        if self.nearest_examples and self.documents == "stacked":
            raise ValueError(
                'nearest_examples requires documents="isolated": stacked documents share a prompt'
            )
        if not isinstance(self.contextual_calibration, bool | None):
            raise ValueError(
                "contextual_calibration must be True, False or None, not "
                f"{self.contextual_calibration!r}"
            )
        if self.contextual_calibration and not self.is_held:
            raise ValueError(
                "contextual_calibration requires slots that are held to their choices: "
                'constrain="types" or "document", and another layout than autoregressive'
            )
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        settings["batch_size"] = None if self.batch_size == "auto" else self.batch_size
        for name in ("k_max", "batch_size", "min_probability"):
            if settings[name] is None:
                del settings[name]
        check_numbers(settings)

    @property
    def is_branched(self) -> bool:
        """True if slots see their own document and key alone, so that follow-ups are possible."""
        return self.layout == "branched" and self.documents == "isolated"

    @property
    def has_skeleton(self) -> bool:
        """True if all keys stand in one sequence, with gaps for the values (section 4.3.1)."""
        return self.layout not in WITHOUT_SKELETON

    @property
    def ends_with_line(self) -> bool:
        """True if a slot ends at the end of its line (section 4.3.4), not with its literal."""
        return self.constrain == "nothing" and self.has_skeleton

    @property
    def is_held(self) -> bool:
        """True if there are slots, which hold what their fields' types allow."""
        return self.constrain != "nothing" and self.layout != "autoregressive"


LEFT_TO_MODELS = ("constrain", "contextual_calibration")
"""Settings whose defaults depend on whether schemax trained the model."""

PRESETS: Mapping[str, DecodingConfig] = MappingProxyType(
    {
        "isolated": DecodingConfig(),
        "paper": DecodingConfig(
            layout="gapped",
            documents="stacked",
            slots="causal",
            documents_per_prompt=6,
            k_max=30,
            max_retries=0,
            constrain="nothing",
            min_probability=0.0,
        ),
        # A retry would only let a rambling model ramble on.
        "autoregressive": DecodingConfig(layout="autoregressive", max_retries=0),
    }
)


def resolve_decoding(decoding: str | DecodingConfig | None) -> DecodingConfig:
    """A config, a preset's name, or a preset with changes, "isolated:layout=gapped:k_max=20".

    Raises ValueError for an unknown name or setting, and for values that do not fit.
    """
    if decoding is None:
        return PRESETS["isolated"]
    if isinstance(decoding, DecodingConfig):
        return decoding
    if not isinstance(decoding, str):
        raise TypeError(f"decoding must be text or a DecodingConfig, not {decoding!r}")
    name, *changes = decoding.split(":")
    if name not in PRESETS:
        raise ValueError(f"decoding must be one of {', '.join(PRESETS)}, not {name!r}")
    return replace(PRESETS[name], **dict(map(_change, changes)))


def decoding_name(config: DecodingConfig) -> str:
    """The shortest text that `resolve_decoding` reads as this config."""
    names = []
    for preset, known in PRESETS.items():
        pairs = ((field.name, getattr(config, field.name)) for field in fields(config))
        changes = [f"{name}={value}" for name, value in pairs if value != getattr(known, name)]
        names.append((len(changes), ":".join([preset, *changes])))
    return min(names, key=lambda pair: pair[0])[1]


_WORDS: Mapping[str, Any] = {"none": None, "true": True, "false": False}


def _change(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or name not in {field.name for field in fields(DecodingConfig)}:
        known = ", ".join(field.name for field in fields(DecodingConfig))
        raise ValueError(f"a change to a preset is NAME=VALUE with one of {known}, not {text!r}")
    if value.lower() in _WORDS:
        return name, _WORDS[value.lower()]
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value
