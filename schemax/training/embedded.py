"""Trains the embedded model from scratch: tokenizer, weights, model folder.

    python -m schemax.training.embedded TRAIN.jsonl OUT --minutes 60

TRAIN.jsonl holds one object a line, `{"id", "category", "text", "attributes": {name: value}}`;
a part of it is held out to watch progress. Texts of --exclude are never trained on.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from schemax.compiler import TextCodec, load_codec
from schemax.config import DecodingConfig
from schemax.evaluation.examples import (
    Example,
    Scores,
    read_examples,
    schemas_of,
    score_examples,
)
from schemax.extractor import Extractor
from schemax.formats import get_format
from schemax.runtime.model import DecoderModel
from schemax.training.sequences import IGNORE, collate
from schemax.training.tasks import batches, compile_tasks
from schemax.training.twins import add_twins, grow

EOS = "<|endoftext|>"
# Digits stand alone, so that sizes and weights are copied digit by digit.
_WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters. Chosen on the held-out part of train."""

    vocab_size: int = 3072
    hidden_size: int = 256
    num_layers: int = 6
    intermediate_size: int = 768
    tokens_per_batch: int = 3000
    learning_rate: float = 1.5e-3
    weight_decay: float = 0.1
    dropout: float = 0.1
    ema_decay: float = 0.998
    bpe_dropout: float = 0.1
    varied: float = 0.7
    invented: float = 0.45
    null_share: float = 0.6
    bf16: bool = False
    twins: bool = False
    held_out: int = 120
    seed: int = 0


def train(
    data: Path,
    excluded: Path | None,
    out: Path,
    recipe: Recipe,
    minutes: float,
    template: Path,
    start: Path | None = None,
) -> None:
    """Trains for a fixed time and writes a model folder that `Extractor` can load.

    start: a folder of an earlier run, whose tokenizer and weights are taken up.
    """
    rng = random.Random(recipe.seed)
    torch.manual_seed(recipe.seed)
    titles = read_titles(data, excluded)
    rng.shuffle(titles)
    held_out, titles = titles[: recipe.held_out], titles[recipe.held_out :]
    if start is None:
        codec = train_tokenizer(titles, recipe.vocab_size, out, recipe.twins)
        model = new_model(recipe, codec, out)
    else:
        shutil.copytree(start, out, dirs_exist_ok=True)
        if recipe.twins:
            grow(out)
        codec = load_codec(out)
        model = Qwen3ForCausalLM.from_pretrained(out, dtype=torch.float32)
    source = template.read_text("utf-8")
    tasks = [*compile_tasks(titles, codec, source, rng)]
    stream = batches(
        titles,
        tasks,
        codec,
        recipe.tokens_per_batch,
        recipe.bpe_dropout,
        recipe.varied,
        recipe.invented,
        recipe.null_share,
        rng,
    )
    decoder = DecoderModel(model)
    dropout = add_dropout(model)
    optimizer = new_optimizer(model, recipe)
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    started, step, checked = time.monotonic(), 0, -0.27
    losses: list[float] = []
    while (done := (time.monotonic() - started) / (60 * minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * min(1, (step + 1) / 100) * schedule(done)
        # Copying has to be found first; what it must not rest on comes later.
        dropout.p = recipe.dropout * (min(1.0, 5 * done) if start is None else 1.0)
        config, sequences = next(stream)
        input_ids, tokens, labels = collate(sequences, codec.eos_ids[0])
        model.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bf16):
            rows, columns = torch.nonzero(labels != IGNORE, as_tuple=True)
            logits = decoder.forward(input_ids, tokens, tokens, None, (rows, columns), config)
        loss = functional.cross_entropy(logits.float(), labels[rows, columns])
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        decay = min(recipe.ema_decay, (1 + step) / (10 + step))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                average[name].lerp_(parameter, 1 - decay)
        losses.append(loss.item())
        if step % 50 == 0:
            minutes_gone = (time.monotonic() - started) / 60
            print(
                f"{minutes_gone:6.1f} min  step {step}  loss {mean(losses[-50:]):.4f}", flush=True
            )
        if done - checked > 0.3:
            checked = done
            check(decoder, average, held_out, codec, source, out, ("json",))
    check(decoder, average, held_out, codec, source, out, ("json", "yaml", "xml"))
    shutil.copy(template, out / "prompt.jinja")


def schedule(done: float) -> float:
    """Cosine from 1 to 0.02 over the time given."""
    return 0.02 + 0.98 * (1 + math.cos(math.pi * min(1.0, done))) / 2


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def read_titles(path: Path, excluded: Path | None) -> list[Example]:
    """Annotated titles of a JSONL file, repeated texts once, without those of another file."""
    unwanted = {example.text for example in read_examples(excluded)} if excluded else set()
    found = {example.text: example for example in read_examples(path)}
    return [example for text, example in found.items() if text not in unwanted]


def train_tokenizer(
    titles: Sequence[Example], vocab_size: int, out: Path, twins: bool
) -> TextCodec:
    """A byte-level BPE over titles and over outputs in every format; saved into `out`."""
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
        special_tokens=[EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = [title.text for title in titles] * 2 + [
        "".join(format.key((name,), None) + format.escape(value) + format.delimiter)
        for format in map(get_format, ("json", "yaml", "xml"))
        for title in titles
        for name, value in [*title.attributes.items(), ("Size", None)]
    ]
    tokenizer.train_from_iterator(corpus, trainer)
    if twins:
        tokenizer, _ = add_twins(tokenizer)
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


def new_model(recipe: Recipe, codec: TextCodec, out: Path) -> Qwen3ForCausalLM:
    """A small Qwen3 with random weights; its config saved into `out`."""
    config = Qwen3Config(
        vocab_size=codec.vocab_size,
        hidden_size=recipe.hidden_size,
        num_hidden_layers=recipe.num_layers,
        intermediate_size=recipe.intermediate_size,
        num_attention_heads=recipe.hidden_size // 64,
        num_key_value_heads=recipe.hidden_size // 128,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=codec.eos_ids[0],
        pad_token_id=codec.eos_ids[0],
        bos_token_id=None,
    )
    config.save_pretrained(out)
    return Qwen3ForCausalLM(config)


def add_dropout(model: nn.Module) -> nn.Dropout:
    """Dropout after attention and feed-forward, which Qwen3 itself does not have.

    Returns the one module that all hooks use; its `p` can be changed at any time.
    """
    dropout = nn.Dropout(0.0)

    def drop(module: nn.Module, _args: Any, output: torch.Tensor) -> torch.Tensor:
        return functional.dropout(output, dropout.p, module.training)

    for name, module in model.named_modules():
        if name.endswith(("o_proj", "down_proj")):
            module.register_forward_hook(drop)
    return dropout


def new_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.98))


def check(
    decoder: DecoderModel,
    average: Mapping[str, torch.Tensor],
    titles: Sequence[Example],
    codec: TextCodec,
    template: str,
    out: Path,
    formats: Sequence[str],
) -> None:
    """Scores the averaged weights on held-out titles, and saves them.

    Every check saves, so that a run that is cut short leaves its latest average.
    """
    model: Any = Qwen3ForCausalLM(decoder.config)
    model.to(torch.bfloat16)
    model.load_state_dict(dict(average), strict=False)
    model.save_pretrained(out)
    extractor = Extractor(model.float(), codec, template=template, eos_ids=codec.eos_ids)
    found = {name: evaluate(extractor, titles, name) for name in formats}
    print(
        "held out: "
        + "  ".join(
            f"{n} F1 {s.protocol.f1:.3f} strict {s.strict.f1:.3f}" for n, s in found.items()
        ),
        flush=True,
    )


def evaluate(extractor: Extractor, titles: Sequence[Example], format: str) -> Scores:
    schemas = schemas_of(titles)
    records = [{"category": title.category, "text": title.text} for title in titles]
    decoding = DecodingConfig(max_retries=0)
    stream = extractor.stream(records, schemas, format=format, decoding=decoding)
    items = sorted(stream, key=lambda item: item.index)
    values = [{name: field.value for name, field in item.fields.items()} for item in items]
    return score_examples(titles, values, schemas)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    usual = Recipe()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--exclude", type=Path, help="JSONL whose texts are never trained on")
    parser.add_argument("--start", type=Path, help="folder of an earlier run to go on from")
    parser.add_argument("--learning-rate", type=float, default=usual.learning_rate)
    parser.add_argument("--dropout", type=float, default=usual.dropout)
    parser.add_argument("--bpe-dropout", type=float, default=usual.bpe_dropout)
    parser.add_argument("--varied", type=float, default=usual.varied)
    parser.add_argument("--invented", type=float, default=usual.invented)
    parser.add_argument("--null-share", type=float, default=usual.null_share)
    parser.add_argument(
        "--twins", action="store_true", help="words without a leading space as one token too"
    )
    parser.add_argument(
        "--bf16",
        action="store_true",
        help="half the time on processors with bfloat16 instructions, many times it elsewhere",
    )
    parser.add_argument("--held-out", type=int, default=usual.held_out)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--template", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    here = Path(__file__).resolve().parent.parent / "embedded" / "prompt.jinja"
    recipe = Recipe(
        seed=options.seed,
        held_out=options.held_out,
        learning_rate=options.learning_rate,
        dropout=options.dropout,
        bpe_dropout=options.bpe_dropout,
        varied=options.varied,
        invented=options.invented,
        null_share=options.null_share,
        bf16=options.bf16,
        twins=options.twins,
    )
    template = options.template or here
    train(
        options.data,
        options.exclude,
        options.out,
        recipe,
        options.minutes,
        template,
        options.start,
    )


if __name__ == "__main__":
    main()
