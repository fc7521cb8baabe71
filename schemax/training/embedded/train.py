"""Trains the embedded model from scratch: tokenizer, weights, model folder."""

from __future__ import annotations

import json
import math
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from schemax.calibration import FILE as CALIBRATION
from schemax.calibration import write_calibration
from schemax.compiler import TextCodec, load_codec
from schemax.config import DecodingConfig, resolve_decoding
from schemax.errors import InputError
from schemax.evaluation.calibrate import calibrate
from schemax.evaluation.examples import Example, read_examples
from schemax.evaluation.schemas import annotated_schemas
from schemax.evaluation.scores import Scores, score_examples
from schemax.extractor import Extractor
from schemax.runtime.model import DecoderModel
from schemax.training.embedded.listings import FOLDER, Category, merged, read_listings, without
from schemax.training.embedded.mixture import Variety, batches, compile_tasks
from schemax.training.embedded.tokenizer import train_tokenizer
from schemax.training.sequences import IGNORE, collate

FORMATS = ("json", "yaml", "xml")
# Categories that are never trained on: they show what the model makes of a new one.
UNSEEN = "unseen.txt"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters. Chosen on the held-out part of train.

    titles_times: how often an annotated title counts beside a listing of its category.
    variants, other_variants: prompts compiled for a category of the titles, and for another one.
    decoding: a preset, with changes or without, that alone is trained; "" for the mixture.
    """

    vocab_size: int = 6144
    hidden_size: int = 256
    num_layers: int = 6
    intermediate_size: int = 768
    tokens_per_batch: int = 4000
    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    dropout: float = 0.05
    ema_decay: float = 0.998
    titles_times: int = 3
    variants: int = 64
    other_variants: int = 4
    variety: Variety = field(default_factory=Variety)
    decoding: str = ""
    bf16: bool = False
    held_out: int = 100
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Data:
    """What is trained on, and what shows how well."""

    train: Mapping[str, Category]
    titles: frozenset[str]
    held_out: Sequence[Example]
    unseen: Sequence[Example]


def read_data(path: Path, excluded: Path | None, recipe: Recipe) -> Data:
    """Titles of a JSONL file and the listings beside this module, a part of the titles held out.

    excluded: texts that are never trained on, nor listings that say the same.
    """
    tests = read_examples(excluded) if excluded else []
    unwanted = {example.text for example in tests}
    titles = {e.text: e for e in read_examples(path) if e.text not in unwanted}
    shuffled = list(titles.values())
    random.Random(recipe.seed).shuffle(shuffled)
    held_out, kept = shuffled[: recipe.held_out], shuffled[recipe.held_out :]
    files = sorted(file for file in FOLDER.glob("*.txt") if file.name != UNSEEN)
    listings = [category for file in files for category in read_listings(file)]
    fresh = list(without(listings, [*tests, *held_out]))
    return Data(
        train=merged(kept, fresh, recipe.titles_times),
        titles=frozenset(title.category for title in kept),
        held_out=held_out,
        unseen=[e for category in read_listings(FOLDER / UNSEEN) for e in category.examples],
    )


def train(
    data: Data,
    out: Path,
    recipe: Recipe,
    minutes: float,
    template: Path,
    start: Path | None = None,
) -> None:
    """Trains for a fixed time and writes a model folder that `Extractor` can load.

    start: a folder of an earlier run of this shape, whose weights are taken up.
    """
    rng = random.Random(recipe.seed)
    torch.manual_seed(recipe.seed)
    (out / CALIBRATION).unlink(missing_ok=True)
    every = [e for category in data.train.values() for e in category.examples]
    codec = train_tokenizer(every, recipe.vocab_size, 8, out)
    model = new_model(recipe, codec, out)
    if start is not None:
        take_up(model, codec, start)
    source = template.read_text("utf-8")
    shutil.copy(template, out / "prompt.jinja")
    known = [category for category in data.train.values() if category.name in data.titles]
    others = [category for category in data.train.values() if category.name not in data.titles]
    only = resolve_decoding(recipe.decoding) if recipe.decoding else None
    tasks = [
        *compile_tasks(known, recipe.variants, codec, source, rng, only),
        *compile_tasks(others, recipe.other_variants, codec, source, rng, only),
    ]
    stream = batches(data.train, tasks, codec, recipe.tokens_per_batch, recipe.variety, rng)
    decoder = DecoderModel(model)
    dropout = add_dropout(model)
    optimizers = new_optimizers(model, recipe)
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    started, step, checked = time.monotonic(), 0, 0.0
    losses: list[float] = []
    while (done := (time.monotonic() - started) / (60 * minutes)) < 1:
        for optimizer in optimizers:
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
        model.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
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
        if done - checked > 0.125:
            checked = done
            check(decoder, average, data, codec, source, out, ("json",), only)
    check(decoder, average, data, codec, source, out, FORMATS, only)
    leave_calibration(data.held_out, out, only)


def schedule(done: float) -> float:
    """Cosine from 1 to 0.02 over the time given."""
    return 0.02 + 0.98 * (1 + math.cos(math.pi * min(1.0, done))) / 2


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


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


def take_up(model: Qwen3ForCausalLM, codec: TextCodec, start: Path) -> None:
    """Gives the model the weights of an earlier one, whose tokenizer may be another.

    A token that the earlier one did not know begins as the mean of how it spelt it, at the length
    of a usual embedding.
    """
    weights = Qwen3ForCausalLM.from_pretrained(start, dtype=torch.float32).state_dict()
    known = weights.pop("model.embed_tokens.weight")
    weights.pop("lm_head.weight")
    _, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    earlier, own = load_codec(start), json.loads(codec.to_str())["model"]["vocab"]
    vocab = json.loads(earlier.to_str())["model"]["vocab"]
    embeddings = model.model.embed_tokens.weight.data
    usual = known.norm(dim=1).mean()
    for token, number in own.items():
        if token in vocab:
            embeddings[number] = known[vocab[token]]
            continue
        spelt = earlier.encode(codec.decode_bytes((number,)).decode("utf-8", "replace"))
        embeddings[number] = functional.normalize(known[list(spelt)].mean(dim=0), dim=0) * usual


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


def new_optimizers(model: nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al., 2024) for the layers' matrices, AdamW for embeddings and norms.

    From scratch, at the same number of steps, Muon's loss is far below AdamW's.
    """
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in named if p.ndim != 2 or "embed" in name]
    rate = recipe.learning_rate
    return [
        torch.optim.Muon(
            matrices, lr=rate, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def check(
    decoder: DecoderModel,
    average: Mapping[str, torch.Tensor],
    data: Data,
    codec: TextCodec,
    template: str,
    out: Path,
    formats: Sequence[str],
    only: DecodingConfig | None,
) -> None:
    """Scores the averaged weights on held-out titles and unseen categories, and saves them.

    Every check saves, so that a run that is cut short leaves its latest average.
    """
    model: Any = Qwen3ForCausalLM(decoder.config)
    model.to(torch.bfloat16)
    model.load_state_dict(dict(average), strict=False)
    model.save_pretrained(out)
    decoding = replace(only or DecodingConfig(), max_retries=0)
    extractor = Extractor(
        model.float(), codec, template=template, decoding=decoding, eos_ids=codec.eos_ids
    )
    for format in formats:
        for name, examples in (("held out", data.held_out), ("unseen", data.unseen)):
            scores = evaluate(extractor, examples, format)
            print(
                f"  {format} {name}: F1 {scores.protocol.f1:.3f} strict {scores.strict.f1:.3f}",
                flush=True,
            )


def leave_calibration(titles: Sequence[Example], out: Path, only: DecodingConfig | None) -> None:
    """Calibrates the model that was written on titles that it was not trained on."""
    decoding = only or DecodingConfig()
    if decoding.layout == "autoregressive" or not titles:
        return
    extractor = Extractor.from_pretrained(out, device="cpu")
    try:
        fit = calibrate(extractor, titles, annotated_schemas(titles), FORMATS, decoding=decoding)
    except InputError as error:  # of a model that was hardly trained
        print(f"not calibrated: {error}", flush=True)
        return
    write_calibration(fit.calibration, out)
    print(f"{fit.calibration}  ECE {fit.before.ece:.3f} -> {fit.after.ece:.3f}", flush=True)


def evaluate(extractor: Extractor, titles: Sequence[Example], format: str) -> Scores:
    schemas = annotated_schemas(titles)
    records = [{"category": title.category, "text": title.text} for title in titles]
    stream = extractor.stream(records, schemas, format=format)
    items = sorted(stream, key=lambda item: item.index)
    values = [{name: field.value for name, field in item.fields.items()} for item in items]
    return score_examples(titles, values, schemas)
