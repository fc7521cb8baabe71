"""The page of tested models, made of test results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from families import FAMILIES

_HEAD = """# Models

schemax runs decoder-only models of transformers in one of two ways, and picks the way by itself:

- **in sequence**: the slots of all documents in flight share one row. Needs a model whose layers go
  by position ids, and whose attention goes through transformers' attention interface. All layouts
  are possible.
- **one row per slot**: for models that go by the order of arrival (recurrent layers, ALiBi), or
  compute their attention in a way of their own (GPT-J, Falcon). The document is read once, its
  state is copied into one row per slot. The layouts `branched` (the preset `isolated`) and
  `autoregressive` are possible; `gapped` (the preset `paper`) is refused.

The table is written by the test suite: random weights, float32, the attention of each family
in small, windows and chunks shorter than the prompts, prompts of mixed lengths in a pass. "exact"
says that every slot got the tokens that transformers' own `generate` gives for the same request,
one attribute at a time.

```
pytest tests/runtime/test_families.py -m "" --models-page docs/models.md
```

Measured with transformers {transformers}, torch {torch}, on a CPU.

| family | attention | positions | decodes | backend | result |
| --- | --- | --- | --- | --- | --- |
"""

_FOOT = """
## Your own model

`schemax doctor MODEL` compares every layout on the model's own weights and tokenizer, on your
machine, and says which settings to use; `--json` gives the same as data, and the exit status is 0
for ready, 1 for not ready, 2 for a model that cannot be loaded. Its texts are short: windows longer
than they are reached by the test suite only, on small models. From Python:

```python
from schemax import doctor

diagnosis = doctor("path/to/model")
diagnosis.ok, diagnosis.problems, diagnosis.recommended
print(diagnosis)
```

Layouts that no plain request equals (`gapped`) are compared with one pass over the same prompt
with its values filled in, without cache, batch or pruning. Outside float32 kernels round
differently with the shape of a batch; there the doctor reports how many tokens agree. Loading a
model runs a small part of this by itself: two passes over a few tokens, in plain order and in the
decoder's. A model that computes something else is refused with a `ModelError`; outside float32
only gross errors can be told from rounding.

## What to know of some families

- **longrope** (Phi-3 and its kin) has two sets of frequencies. transformers chooses by the
  longest text of a batch; schemax chooses for every prompt by itself, by the largest position id
  that it can come to, budgets included, so that batch-mates change nothing.
- **dynamic** RoPE scaling is plain RoPE up to the model's context, and longer prompts are refused.
- **Sliding windows and chunks** are applied by position id, whatever lies between in memory.
- **Llama 4** scales attention in some layers by the order of arrival, from `floor_scale` (8,192)
  tokens on; a prompt that could come near it, all its slots counted, is a row error.
- **Gemma 2** caps attention scores, which sdpa does not: it is run with eager attention.
- **Nemotron-H and Zamba 2** clamp the time steps of their Mamba layers when they read several
  tokens at once, and not when they read one, as transformers has it. Keys are read token by token
  here, so logits differ from a plain request's by a hundredth of their spread or so, and now and
  then a token does.
- **RWKV** of transformers mixes up the rows of a batch when it reads a single token, so its rows
  are run one by one.
- **Flash attention** of transformers takes no masks of ours: load with
  `attn_implementation="sdpa"`.
"""


def models_page(rows: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        f"| {name} | {family.heads} | {family.positions} | {row.get('decodes', '')} | "
        f"{row.get('backend', '')} | {_result(row)} |\n"
        for name, family in FAMILIES.items()
        for row in [rows.get(name, {})]
    ]
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    return _HEAD.format(**versions) + "".join(lines) + _FOOT


def _result(row: Mapping[str, Any]) -> str:
    if not row:
        return "not run"
    if row["outcome"] == "failed":
        return "**not exact**"
    return str(row.get("refused") or "exact")
