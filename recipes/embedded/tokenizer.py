"""The tokenizer of the embedded model: a byte-level BPE whose capitalised words have twins.

A BPE trained on titles has a token ` Leather`, but spells `Leather`, as behind a quote in JSON, in
two or three tokens. To copy the word, a small model would have to know the spelling of each token.
With a twin for every capitalised token, a token is copied as a token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from schemax.compiler import TextCodec
from schemax.evaluation.examples import Example, canonical_value
from schemax.formats import get_format

EOS = "<|endoftext|>"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_SPACE = "\u0120"  # a leading space in byte-level BPE
# Every digit is a token, so that sizes and weights are copied digit by digit.
_WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(
    titles: Sequence[Example], vocab_size: int, minimum: int, out: Path
) -> TextCodec:
    """Trains a byte-level BPE on titles and on outputs in every format; saves it into `out`.

    vocab_size: the most tokens of the BPE, without twins. minimum: the least frequency of a pair
    that becomes a token, since rare tokens are not learnt.
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
            format.key((name,), None) + format.escape(canonical_value(label)) + format.delimiter
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
    """Adds, for every capitalised token with a leading space, its twin without the space.

    Every merge that makes a capitalised word behind a space is followed by the same merge without
    the space, so that both are cut in the same way.
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
