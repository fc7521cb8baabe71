"""Who sees whom, in words and as a picture: the rule itself, run on a prompt of a few tokens."""

from __future__ import annotations

from dataclasses import dataclass

from schemax.config import DecodingConfig
from schemax.runtime.plan import Plan, plan_prompt
from schemax.tokens import PromptIds

_VALUE_TOKENS = 2

_LAYOUTS = {
    "branched": "Keys: every key starts right after the prompt, in a branch of its own. Branches "
    "share position ids and see nothing of each other.",
    "gapped": "Keys: all stand in one skeleton, which every later token sees. After each key its "
    "slot's k_max position ids are left free for the value.",
    "autoregressive": "Keys: none are given. The model writes keys and values, one token after "
    "the other, and sees all that it has written.",
}
_DOCUMENTS = {
    "isolated": "Documents: each sees the instruction and itself. Positions restart after the "
    "instruction.",
    "stacked": "Documents: all share one sequence, and the outputs see all of them.",
}
_SLOTS = {
    "independent": "Slots: a value sees the prompt, its key and its own tokens, never another "
    "value.",
    "causal": "Slots: the k-th token of a value also sees the first k tokens of the values "
    "before it.",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """sees[q][k]: whether token q sees token k; `labels` names them."""

    labels: tuple[str, ...]
    sees: tuple[tuple[bool, ...], ...]

    def lines(self) -> list[str]:
        """The matrix as text: a row per token that looks, a column per token that is seen."""
        width = max(map(len, self.labels))
        head = " " * width + " " + " ".join(label.rjust(width) for label in self.labels)
        rows = [
            f"{label.rjust(width)} " + " ".join(("■" if seen else "·").rjust(width) for seen in row)
            for label, row in zip(self.labels, self.sees, strict=True)
        ]
        return [head, *rows]


def sentences(config: DecodingConfig) -> tuple[str, ...]:
    """The rule of visibility for these settings, in words."""
    if config.layout == "autoregressive":
        return (_LAYOUTS[config.layout],)
    return (_LAYOUTS[config.layout], _DOCUMENTS[config.documents], _SLOTS[config.slots])


def picture(config: DecodingConfig) -> Picture:
    """The rule of visibility on one document of three slots, or two stacked ones of two.

    I, D and S are one token each, and so is every key; values have two tokens.
    """
    import torch  # takes seconds, and only this picture needs it

    from schemax.runtime.visibility import TokenInfo, visible

    stacked = config.documents == "stacked"
    documents = 2 if stacked else 1
    plan = plan_prompt(_sample(config, documents), config)
    labels = _labels(plan, config, documents)
    rows = [
        (int(position), int(document), int(slot), 0)
        for position, document, slot in zip(
            plan.position_ids, plan.document, plan.slot, strict=True
        )
    ]
    order = list(range(len(rows)))
    for place, slot in enumerate(plan.slot_ids):
        at = order.index(int(plan.last_index[place])) + 1
        for step in range(1, _VALUE_TOKENS + 1):
            order.insert(at + step - 1, len(rows))
            labels.append(_value_label(plan, place, documents, config, step))
            position = int(plan.last_position[place]) + step
            rows.append((position, int(plan.slot_document[place]), int(slot), step))
    position, document, slot, step = torch.tensor([rows[at] for at in order]).T[:, None]
    real = torch.ones_like(position, dtype=torch.bool)
    tokens = TokenInfo(position, document, slot, step, real)
    seen = visible(tokens, tokens, config)[0].tolist()
    return Picture(tuple(labels[at] for at in order), tuple(tuple(row) for row in seen))


def _sample(config: DecodingConfig, documents: int) -> PromptIds:
    slots = 1 if config.layout == "autoregressive" else 3 if documents == 1 else 2
    key = () if config.layout == "autoregressive" else (0,)
    return PromptIds(
        instruction=(0,),
        documents=((0,),) * documents,
        opening=(0,),
        keys=((key,) * slots,) * documents,
        k_max=(_VALUE_TOKENS + 1,) * slots,
        sampling_keys=(0,) * documents,
    )


def _labels(plan: Plan, config: DecodingConfig, documents: int) -> list[str]:
    """Names of the prompt's tokens, in the order of the plan."""
    shown = ["D"] if documents == 1 else [f"D{j + 1}" for j in range(documents)]
    labels = ["I", *shown, "S"]
    if config.layout != "autoregressive":
        labels += [f"k{_slot_label(plan, place, documents)}" for place in range(len(plan.slot_ids))]
    return labels


def _value_label(plan: Plan, place: int, documents: int, config: DecodingConfig, step: int) -> str:
    if config.layout == "autoregressive":
        return f"w{step}"
    return f"v{_slot_label(plan, place, documents)}.{step}"


def _slot_label(plan: Plan, place: int, documents: int) -> str:
    per_document = len(plan.slot_ids) // documents
    number = place % per_document + 1
    return str(number) if documents == 1 else f"{'ab'[place // per_document]}{number}"
