"""The model that lives in the repository does what its card says."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from conftest import slow_but
from safetensors.torch import load_file, save_file

from recipes.embedded.average import average
from recipes.embedded.televisions import right
from schemax import (
    AttrSchema,
    Extractor,
    ModelError,
    OutputFormat,
    attr,
    extract,
    extract_files,
    extract_frame,
    load_schema,
)
from schemax.base.resources import resource_dir
from schemax.evaluation.examples import read_examples
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.evaluation.scores import labelled_texts, score_predictions
from schemax.extraction.extractor import loaded

FOLDER = resource_dir("embedded")
# Of 30 titles, how many are right at least; of other fields hardly any are.
TELEVISIONS = {
    "json": {"brand": 22, "screen_size": 26, "resolution": 21, "smart": 22, "ports": 19},
    "yaml": {"brand": 20, "screen_size": 26, "resolution": 21, "smart": 20, "ports": 13},
    "xml": {"brand": 22, "screen_size": 26, "resolution": 22, "smart": 22, "ports": 11},
}


@pytest.fixture(scope="module")
def embedded() -> Extractor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Extractor.default()


def test_small_and_safe(embedded: Extractor) -> None:
    assert sum(p.numel() for p in embedded.model.model.parameters()) <= 10_000_000
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 20_000_000
    assert {file.suffix for file in FOLDER.iterdir()} <= {".json", ".jinja", ".md", ".safetensors"}


def test_warns_of_what_it_was_trained_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCHEMAX_MODEL", raising=False)
    with pytest.warns(UserWarning, match="ten categories"):
        extract(["Crocs Clog"], load_schema("shoes"))


@pytest.mark.slow
def test_its_name_and_what_is_said_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning names the line of the caller, wherever in schemax it comes up."""
    monkeypatch.delenv("SCHEMAX_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    schema, frame = load_schema("coffee"), pandas.DataFrame({"title": ["Ground coffee"]})
    (tmp_path / "in.jsonl").write_text('{"title": "Ground coffee"}')
    calls: list[Callable[[], Any]] = [
        lambda: Extractor.from_pretrained("embedded"),
        lambda: extract(["Ground coffee"], schema, model="embedded"),
        lambda: extract(["Ground coffee"], schema),
        lambda: extract_frame(frame, schema, model="embedded"),
        lambda: extract_files(schema, "in.jsonl", "out.jsonl", model="embedded"),
    ]
    for call in calls:
        loaded(str(resource_dir("embedded")))  # in the place of "embedded"
        with pytest.warns(UserWarning, match="embedded model") as caught:
            call()
        assert {warning.filename for warning in caught} == {__file__}
    (tmp_path / "embedded").mkdir()
    with pytest.raises(ModelError):
        Extractor.from_pretrained("embedded")


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_reads_a_listing_in_every_format(embedded: Extractor, format: str) -> None:
    title = "Crocs Women's Jayna Ballet Flat, Navy, 4 M US"
    (shoe,) = embedded.extract([title], load_schema("shoes"), format=format)
    values = [value for value in shoe.model_dump().values() if value is not None]
    assert shoe.brand == "Crocs"
    assert len(values) >= 4
    assert all(value in title for value in values)


def test_own_schemas_and_formats_run(embedded: Extractor, lines_format: OutputFormat) -> None:
    class Boot(AttrSchema, category="shoes"):
        maker: str | None = attr("Who makes the boot", title="Brand")
        color: str | None = attr("Color of the boot", title="Color")

    titles = ["Crocs Classic Clog, Navy, 8 US Women"]
    assert embedded.extract(titles, Boot)[0].maker == "Crocs"
    assert len(embedded.extract(titles, Boot, format=lines_format)) == 1


@pytest.mark.slow
def test_hyper_parallel_takes_far_fewer_passes(embedded: Extractor) -> None:
    rows = [
        {"category": "coffee", "title": "Lavazza Ground Coffee, Dark Roast, 12 oz (Pack of 6)"},
        {"category": "tea", "title": "Twinings Green Tea Bags, Peach, 20 Count, Caffeine Free"},
    ]
    schemas: dict[str, Any] = {name: load_schema(name) for name in ("coffee", "tea")}

    def passes(decoding: str) -> int:
        stream = embedded.stream(rows, schemas, category="category", decoding=decoding)
        return sum(item.steps for item in stream)

    assert 3 * passes("isolated") < passes("autoregressive")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "least"),
    [
        ("json", 0.71),
        pytest.param("yaml", 0.732, marks=pytest.mark.release),
        pytest.param("xml", 0.732, marks=pytest.mark.release),
    ],
)
def test_quality_on_annotated_titles(
    embedded: Extractor, data: Path, format: str, least: float
) -> None:
    """F1 by the protocol of ExtractGPT, on the whole test split of OA-Mine."""
    examples = read_examples(data / "oa_mine.test.jsonl")
    schemas = annotated_schemas(examples)
    records = [{"category": e.category, "text": e.text} for e in examples]
    stream = embedded.stream(records, schemas, category="category", format=format)
    items = sorted(stream, key=lambda item: item.index)
    values = [{name: field.value for name, field in item.fields.items()} for item in items]
    predictions = labelled_texts(examples, values, schemas)
    assert score_predictions(examples, predictions).protocol.f1 >= least


@pytest.mark.slow
@pytest.mark.parametrize("format", slow_but({"json"}, ["json", "yaml", "xml"]))
def test_a_schema_that_it_was_not_made_for(embedded: Extractor, format: str) -> None:
    """Of 30 titles, fields of the README's television that are right at least so often."""
    counts, least = right(embedded, format, "isolated:min_probability=0"), TELEVISIONS[format]
    assert {name: counts[name] for name in least if counts[name] < least[name]} == {}


def test_the_card_gives_the_size_that_is_there(embedded: Extractor) -> None:
    config = json.loads((FOLDER / "config.json").read_text("utf-8"))
    card = (FOLDER / "README.md").read_text("utf-8")
    assert f"{config['num_hidden_layers']} layers, hidden size {config['hidden_size']}" in card
    assert f"{config['vocab_size']:,} tokens" in card


def test_the_mean_of_two_models(tmp_path: Path) -> None:
    first, second, out = tmp_path / "first", tmp_path / "second", tmp_path / "out"
    for folder in (first, second):
        shutil.copytree(FOLDER, folder)
    weights = load_file(first / "model.safetensors")
    save_file({name: 3 * t for name, t in weights.items()}, second / "model.safetensors")
    average(first, second, out)
    for name, mean in load_file(out / "model.safetensors").items():
        torch.testing.assert_close(mean.float(), 2 * weights[name].float(), rtol=0.01, atol=0.01)
    assert (out / "tokenizer.json").is_file()
    (second / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="other tokens"):
        average(first, second, out)
