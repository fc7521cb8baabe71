"""Trains the embedded model from scratch: tokenizer, weights, model folder.

    python -m schemax.training.embedded TRAIN.jsonl OUT --minutes 60

TRAIN.jsonl holds one object a line, `{"id", "category", "text", "attributes": {name: value}}`;
a part of it is held out, and the checkpoint with the best F1 there is kept.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from pydantic import create_model
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.compiler.skeleton import render_values
from schemax.config import PRESETS, DecodingConfig
from schemax.evaluation.pairs import PairScore, add_scores, score_pairs
from schemax.formats import get_format
from schemax.runtime.decoder import decode
from schemax.runtime.model import DecoderModel
from schemax.runtime.plan import plan_prompt
from schemax.schema import AttrSchema, attr
from schemax.training.augment import Augmenter, Title
from schemax.training.sequences import (
    IGNORE,
    TrainingSequence,
    collate,
    training_sequence,
    value_ids,
)

EOS = "<|endoftext|>"
FORMATS = ("json", "json", "yaml", "xml")
# Digits stand alone, so that sizes and weights are copied digit by digit.
_WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Other names under which the same thing is asked for.
_SYNONYMS = {
    "Brand": ("Manufacturer", "Maker", "Brand name"),
    "Model name": ("Model", "Name"),
    "Color": ("Colour",),
    "Flavor": ("Flavour", "Taste"),
    "Scent": ("Fragrance",),
    "Item form": ("Form",),
    "Pack size": ("Pack", "Package quantity"),
    "Net content": ("Content", "Amount"),
}


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
    held_out: int = 120
    seed: int = 0


def train(data: Path, out: Path, recipe: Recipe, minutes: float, template: Path) -> None:
    """Trains for a fixed time and writes a model folder that `Extractor` can load."""
    rng = random.Random(recipe.seed)
    torch.manual_seed(recipe.seed)
    titles = read_titles(data)
    rng.shuffle(titles)
    held_out, titles = titles[: recipe.held_out], titles[recipe.held_out :]
    codec = train_tokenizer(titles, recipe.vocab_size, out)
    model = new_model(recipe, codec, out)
    source = template.read_text("utf-8")
    tasks = [*compile_tasks(titles, codec, source, rng)]
    stream = batches(titles, tasks, codec, recipe, rng)
    decoder = DecoderModel(model)
    dropout = add_dropout(model)
    optimizer = new_optimizer(model, recipe)
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    started, step, best, last_check = time.monotonic(), 0, 0.0, 0.0
    losses: list[float] = []
    while (done := (time.monotonic() - started) / (60 * minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * min(1, (step + 1) / 100) * schedule(done)
        # Copying has to be found first; what it must not rest on comes later.
        dropout.p = recipe.dropout * min(1.0, 5 * done)
        config, sequences = next(stream)
        input_ids, tokens, labels = collate(sequences, codec.eos_ids[0])
        model.train()
        with torch.autocast("cpu", torch.bfloat16):
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
        if done - last_check > 0.08 or time.monotonic() - started > 60 * minutes:
            last_check = done
            f1 = check_and_keep(decoder, average, held_out, codec, source, out, best)
            best = max(best, f1)
    check_and_keep(decoder, average, held_out, codec, source, out, best)
    shutil.copy(template, out / "prompt.jinja")


def schedule(done: float) -> float:
    """Cosine from 1 to 0.02 over the time given."""
    return 0.02 + 0.98 * (1 + math.cos(math.pi * min(1.0, done))) / 2


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def read_titles(path: Path) -> list[Title]:
    """Annotated titles of a JSONL file; repeated texts once."""
    found = {}
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        found[row["text"]] = Title(row["category"], row["text"], row["attributes"])
    return list(found.values())


def train_tokenizer(titles: Sequence[Title], vocab_size: int, out: Path) -> TextCodec:
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
        for name, value in [*title.values.items(), ("Size", None)]
    ]
    tokenizer.train_from_iterator(corpus, trainer)
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


def declare(category: str, names: Mapping[str, tuple[str, str | None]]) -> type[AttrSchema]:
    """A schema whose field `f3` stands for the third attribute, shown as (label, description)."""
    fields: dict[str, Any] = {
        f"f{place}": (str | None, attr(description, title=label))
        for place, (label, description) in enumerate(names.values())
    }
    return create_model(
        "Category", __base__=AttrSchema, __cls_kwargs__={"category": category}, **fields
    )


@dataclass(frozen=True, slots=True)
class Task:
    """A category compiled for one layout and format, and which attribute each slot stands for."""

    category: str
    names: tuple[str, ...]
    compiled: CompiledSchema


def compile_tasks(
    titles: Sequence[Title], codec: TextCodec, template: str, rng: random.Random
) -> Iterator[Task]:
    """Variants of every category: other orders, subsets, names and descriptions, all layouts."""
    stacked = DecodingConfig(
        layout="gapped", documents="stacked", slots="causal", documents_per_prompt=3, k_max=30
    )
    layouts = [PRESETS["isolated"]] * 10 + [stacked] + [PRESETS["autoregressive"]]
    for category in sorted({title.category for title in titles}):
        known = attribute_names(titles, category)
        for layout in layouts:
            for format in FORMATS:
                names = list(known)
                if rng.random() < 0.7:
                    rng.shuffle(names)
                if rng.random() < 0.3:
                    names = names[: rng.randrange(3, len(names) + 1)]
                described = rng.choice((0.0, 0.0, 0.0, 0.0, 0.5, 1.0))
                shown = {
                    name: (
                        rng.choice(_SYNONYMS.get(name, (name,))) if rng.random() < 0.08 else name,
                        describe(category, name) if rng.random() < described else None,
                    )
                    for name in names
                }
                if len({label for label, _ in shown.values()}) < len(shown):
                    shown = {name: (name, None) for name in names}
                compiled = compile_schema(
                    declare(category, shown),
                    codec,
                    format=format,
                    template=template,
                    decoding=layout,
                )
                yield Task(category, tuple(names), compiled)


def attribute_names(titles: Sequence[Title], category: str) -> list[str]:
    names = [n for title in titles if title.category == category for n in title.values]
    return sorted(set(names), key=lambda name: (-names.count(name), name))


def describe(category: str, name: str) -> str | None:
    """The description of the ready-made schema of that category, if there is one."""
    from schemax.resources import resource_dir

    path = resource_dir("schemas") / f"{category.lower().replace(' ', '_')}.json"
    if not path.is_file():
        return None
    properties = json.loads(path.read_text("utf-8"))["properties"]
    found = (p.get("description") for p in properties.values() if p.get("title") == name)
    return next(found, None)


def batches(
    titles: Sequence[Title],
    tasks: Sequence[Task],
    codec: TextCodec,
    recipe: Recipe,
    rng: random.Random,
) -> Iterator[tuple[DecodingConfig, list[TrainingSequence]]]:
    """Batches of one layout each, of sequences of like length."""
    by_category: dict[str, list[Title]] = {}
    for title in titles:
        by_category.setdefault(title.category, []).append(title)
    by_layout: dict[DecodingConfig, list[Task]] = {}
    for task in tasks:
        by_layout.setdefault(task.compiled.decoding, []).append(task)
    weights = [len(group) for group in by_layout.values()]
    augment = Augmenter(titles)
    noisy = dropout_tokenizer(codec, recipe.bpe_dropout)
    layouts = list(by_layout)
    while True:
        config = rng.choices(layouts, weights)[0]
        count = 256 // config.documents_per_prompt
        sequences = []
        for _ in range(count):
            task = rng.choice(by_layout[config])
            drawn = rng.choices(by_category[task.category], k=config.documents_per_prompt)
            drawn = [augment(title, rng) for title in drawn]
            encode = noisy.encode if rng.random() < 0.3 else codec.encode
            sequences.append(fill(task, drawn, encode))
        parts = split_by_tokens(sorted(sequences, key=len), recipe.tokens_per_batch)
        rng.shuffle(parts)
        for part in parts:
            yield config, part


def split_by_tokens(
    ordered: Sequence[TrainingSequence], budget: int
) -> list[list[TrainingSequence]]:
    """Batches of as many sequences, shortest first, as fit the budget when padded."""
    parts: list[list[TrainingSequence]] = [[]]
    for sequence in ordered:
        if parts[-1] and len(sequence) * (len(parts[-1]) + 1) > budget:
            parts.append([])
        parts[-1].append(sequence)
    return parts


def fill(task: Task, titles: Sequence[Title], encode: Any) -> TrainingSequence:
    """One prompt about these titles with the right values in its slots."""
    compiled = task.compiled
    documents = [tuple(encode(title.text)) for title in titles]
    prompt = compiled.assemble(documents)
    values = []
    for title in titles:
        texts = [title.values.get(name) for name in task.names]
        if compiled.decoding.layout == "autoregressive":
            output = render_values(compiled.attributes, compiled.format, texts)
            output = output.removeprefix(compiled.format.opening())
            values.append((*compiled.codec.encode(output), compiled.stop.eos_ids[0]))
            continue
        for text, k_max in zip(texts, compiled.k_max, strict=True):
            literal = compiled.format.escape(text) + compiled.format.delimiter
            values.append(value_ids(literal, compiled, k_max))
    sequence = training_sequence(compiled, prompt, values)
    for ids in documents:
        label_second_reading(sequence, ids)
    return sequence


def label_second_reading(sequence: TrainingSequence, ids: Sequence[int]) -> None:
    """Where the prompt shows a document twice, its second reading is learnt as well.

    Every token of it can be copied from the first reading, which teaches copying long before
    values do.
    """
    windows = np.lib.stride_tricks.sliding_window_view(sequence.input_ids, len(ids))
    starts = np.flatnonzero((windows == np.asarray(ids)).all(axis=1))
    for start in starts[1:2]:
        sequence.labels[start : start + len(ids) - 1] = ids[1:]


def dropout_tokenizer(codec: TextCodec, rate: float) -> Any:
    """The same tokenizer with merges skipped at random, so that words are seen in many cuts."""
    backend = tokenizers.Tokenizer.from_str(codec.to_str())
    backend.model.dropout = rate
    return _Noisy(backend)


class _Noisy:
    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend = backend

    def encode(self, text: str) -> list[int]:
        return list(self.backend.encode(text, add_special_tokens=False).ids)


def check_and_keep(
    decoder: DecoderModel,
    average: Mapping[str, torch.Tensor],
    titles: Sequence[Title],
    codec: TextCodec,
    template: str,
    out: Path,
    best: float,
) -> float:
    """F1 of the averaged weights on held-out titles; saves them if they are the best so far."""
    model = decoder.model
    kept = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.load_state_dict(dict(average), strict=False)
    model.eval()
    scores = {
        name: evaluate(decoder, titles, codec, template, name) for name in ("json", "yaml", "xml")
    }
    f1 = scores["json"][0].f1
    print(
        "held out: "
        + "  ".join(f"{n} F1 {s.f1:.3f} (strict {t.f1:.3f})" for n, (s, t) in scores.items()),
        flush=True,
    )
    if f1 > best:
        import copy

        weights = copy.deepcopy(model).to(torch.bfloat16)
        weights.save_pretrained(out)
    model.load_state_dict(kept, strict=False)
    return f1


def evaluate(
    decoder: DecoderModel,
    titles: Sequence[Title],
    codec: TextCodec,
    template: str,
    format: str,
    decoding: str = "isolated",
) -> tuple[PairScore, PairScore]:
    """(protocol, strict) scores of the model as it is now."""
    parts, strict = [], []
    for category in sorted({title.category for title in titles}):
        names = attribute_names(titles, category)
        schema = declare(category, {name: (name, None) for name in names})
        compiled = compile_schema(schema, codec, format=format, template=template)
        of_category = [title for title in titles if title.category == category]
        prompts = compiled.encode([title.text for title in of_category])
        plans = [plan_prompt(prompt, compiled.decoding) for prompt in prompts]
        rows = []
        for title, slots in zip(
            of_category, decode(decoder, plans, compiled.stop, compiled.decoding), strict=True
        ):
            predicted: dict[str, str | None] = {}
            for name, slot in zip(names, slots, strict=True):
                try:
                    value = compiled.format.unescape(compiled.decode_slot(slot.ids)[0])
                except ValueError:
                    value = None
                predicted[name] = value if isinstance(value, str) else None
            rows.append((title.values, predicted))
        parts.append(score_pairs(rows))
        strict.append(score_pairs(rows, attributes=names))
    return add_scores(parts), add_scores(strict)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--template", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    here = Path(__file__).resolve().parent.parent / "embedded" / "prompt.jinja"
    recipe = Recipe(seed=options.seed)
    train(options.data, options.out, recipe, options.minutes, options.template or here)


if __name__ == "__main__":
    main()
