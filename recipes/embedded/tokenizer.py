"""The tokenizer of the embedded model: a byte-level BPE whose capitalised words have twins.

A BPE that is trained on titles knows ` Leather` as one token, and spells `Leather`, as it stands
behind a quote in JSON, in two or three. To copy the word, a small model would have to know how
each token is spelt. A twin for every capitalised token makes copying one token for one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from schemax.compiler import TextCodec
from schemax.evaluation.examples import Example, canonical
from schemax.formats import get_format

EOS = "<|endoftext|>"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_SPACE = "\u0120"  # how byte-level BPE writes a leading space
# Digits stand alone, so that sizes and weights are copied digit by digit.
_WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(
    titles: Sequence[Example], vocab_size: int, minimum: int, out: Path
) -> TextCodec:
    """A byte-level BPE over titles and over outputs in every format; saved into `out`.

    vocab_size: of the BPE at most; twins come on top. minimum: how often a pair occurs that
    becomes a token, since what is rare is not learnt.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=minimum,
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = [title.text for title in titles] * 2 + [
        "".join(
            format.key((name,), None) + format.escape(canonical(label)) + format.delimiter
            for name, label in [*title.attributes.items(), ("Size", None)]
        )
        for format in map(get_format, ("json", "yaml", "xml"))
        for title in titles
    ]
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer = add_twins(tokenizer)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS,
        "pad_token": EOS,
        "clean_up_tokenization_spaces": False,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    return TextCodec(tokenizer, special_tokens={"eos_token": EOS})


def add_twins(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer with a token without the space for every capitalised one with it.

    Every merge that makes a capitalised word behind a space is followed by the same merge without
    the space, so that both are cut alike.
    """
    spec = json.loads(backend.to_str())
    vocab: dict[str, int] = spec["model"]["vocab"]
    merges = []
    known = {tuple(pair) for pair in spec["model"]["merges"]}
    next_id = max([*vocab.values(), *(token["id"] for token in spec["added_tokens"])]) + 1
    for left, right in spec["model"]["merges"]:
        merges.append([left, right])
        twin = (left[1:], right)
        if not left.startswith(_SPACE) or not left[1:2].isupper() or twin in known:
            continue
        known.add(twin)
        merges.append(list(twin))
        if "".join(twin) not in vocab:
            vocab["".join(twin)] = next_id
            next_id += 1
    spec["model"]["merges"] = merges
    return tokenizers.Tokenizer.from_str(json.dumps(spec))
