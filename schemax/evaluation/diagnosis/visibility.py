"""The rule of visibility in words, and as a picture of a prompt of a few tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemax.config import DecodingConfig
from schemax.runtime.slots.plan import plan_prompt, with_values
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


def sentences(config: DecodingConfig) -> tuple[str, ...]:
    """Returns the rule of visibility for these settings, in words."""
    if config.layout == "autoregressive":
        return (_LAYOUTS[config.layout],)
    return (_LAYOUTS[config.layout], _DOCUMENTS[config.documents], _SLOTS[config.slots])


def picture(config: DecodingConfig) -> dict[str, Any]:
    """Returns the rule of visibility for a document of three slots, or two stacked ones of two.

    sees[q][k]: True if token q sees token k; `labels` names the tokens. I, D, S and every key are
    one token each; values have two tokens.
    """
    import torch  # takes seconds, and is needed only here

    from schemax.runtime.attention.visibility import TokenInfo, visible

    writes_keys = config.layout == "autoregressive"
    documents = ("a", "b") if config.documents == "stacked" else ("",)
    numbers = ("",) if writes_keys else ("1", "2") if documents[1:] else ("1", "2", "3")
    prompt = PromptIds(
        instruction=(0,),
        documents=((0,),) * len(documents),
        opening=(0,),
        keys=((() if writes_keys else (0,),) * len(numbers),) * len(documents),
        k_max=(_VALUE_TOKENS + 1,) * len(numbers),
        sampling_keys=(0,) * len(documents),
    )
    plan = plan_prompt(prompt, config)
    filled = with_values(plan, [(0,) * _VALUE_TOKENS] * len(plan.slot_ids))
    shown = [f"D{j + 1}" for j in range(len(documents))] if documents[1:] else ["D"]
    slots = [document + number for document in documents for number in numbers]
    slots = slots[: len(plan.slot_ids)]
    labels = ["I", *shown, "S", *([] if writes_keys else [f"k{slot}" for slot in slots])]
    for slot in slots:
        value = "w" if writes_keys else f"v{slot}."
        labels += [f"{value}{step + 1}" for step in range(_VALUE_TOKENS)]
    # Values are shown right behind their keys, not at their places in the sequence.
    after = [*range(len(plan.input_ids)), *plan.last_index.repeat(_VALUE_TOKENS)]
    order = sorted(range(len(labels)), key=after.__getitem__)
    integers = (filled.position_ids, filled.document, filled.slot, filled.step)
    position, owner, branch, step = (torch.from_numpy(row[order])[None] for row in integers)
    tokens = TokenInfo(position, owner, branch, step, torch.ones_like(step, dtype=torch.bool))
    sees = visible(tokens, tokens, config)[0].tolist()
    return {"labels": [labels[at] for at in order], "sees": sees}


def lines(picture: Mapping[str, Any]) -> list[str]:
    """Returns the matrix as text: a row per query token, a column per token that is seen."""
    width = max(map(len, picture["labels"]))
    rows = [("", picture["labels"])]
    for label, row in zip(picture["labels"], picture["sees"], strict=True):
        rows.append((label, ["■" if seen else "·" for seen in row]))
    return [" ".join(cell.rjust(width) for cell in (label, *cells)) for label, cells in rows]
