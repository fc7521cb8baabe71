"""What a model was trained with travels with it: `schemax.json`, written and used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from command_line import jsonl, refused, save_model
from typer.testing import CliRunner

from schemax import AttrSchema, attr
from schemax.base.trained import FILE, TrainedWith, read_trained, write_trained
from schemax.commands.cli import app
from schemax.compiler.prompt import template_source
from schemax.config import PRESETS, decoding_name, resolve_decoding
from schemax.errors import ModelError
from schemax.extraction.extractor import Extractor
from schemax.runtime.models.loading import load, precision

SHOP = '''
from schemax import AttrSchema, attr

TEMPLATE = """Read. {% for d in documents %}{{ d.text }}
{% endfor %}"""

class Tea(AttrSchema, template=TEMPLATE):
    brand: str | None = attr("Who makes it", title="Brand")
    count: int | None = attr(title="Count", k_max=5)
'''
ROWS = [
    {"category": "Tea", "text": f"{brand} tea {count} ct", "attributes": row}
    for brand, count in (("Tazo", 24), ("Numi", 18), ("Rishi", 15))
    for row in [{"Brand": brand, "Count": count}]
]


@pytest.fixture(scope="module")
def tuned(backend: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained for one step, in another format and layout than usual, by LoRA."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "base").mkdir()
    save_model(backend, folder / "base")
    (folder / "shop.py").write_text(SHOP)
    jsonl(folder / "train.jsonl", ROWS)
    jsonl(folder / "test.jsonl", ROWS[:2])
    done = invoke(
        *("train", folder / "train.jsonl", "--model", folder / "base", "--out", folder / "out"),
        *("--schemas", f"{folder / 'shop.py'}:Tea", "--format", "yaml", "--held-out", 0),
        *("--decoding", "isolated:layout=gapped", "--steps", 1, "--device", "cpu"),
        *("--lora", 4, "--keep-adapter"),
    )
    assert done.exit_code == 0, done.output
    return folder / "out"


def invoke(*args: object) -> Any:
    return CliRunner().invoke(app, list(map(str, args)))


@pytest.mark.slow
def test_the_template_of_a_class_and_all_else_are_written(tuned: Path) -> None:
    for folder in (tuned, tuned / "adapter"):
        extractor = Extractor.from_pretrained(folder, device="cpu")
        assert extractor.defaults.format == "yaml"
        assert extractor.defaults.decoding == resolve_decoding("isolated:layout=gapped")
        assert "Read. " in str(extractor.defaults.template)
        again = AttrSchema.from_json_schema(extractor.trained.schemas["Tea"])
        assert "Read. " in extractor.compile(again).prompt.instruction
        assert list(again.model_fields) == ["brand", "count"]
    # Whoever says otherwise is obeyed.
    other = Extractor.from_pretrained(tuned, device="cpu", format="xml", decoding="isolated")
    assert (other.defaults.format, other.defaults.decoding.layout) == ("xml", "branched")


@pytest.mark.slow
def test_commands_use_it_and_say_so(tuned: Path) -> None:
    test = tuned.parent / "test.jsonl"
    done = invoke("evaluate", test, "--model", tuned)
    assert done.exit_code == 0, done.output
    assert "with the format yaml, the decoding isolated:layout=gapped, the template" in done.stderr
    assert "schemas of the model's training: Tea" in done.stderr
    done = invoke("evaluate", test, "--model", tuned, "--format", "json", "--decoding", "isolated")
    assert "the format yaml" not in done.stderr
    # The folder stands for its schemas, and for the model itself.
    done = invoke("extract", tuned, test, "--text", "text", "--batch-size", 2)
    assert done.exit_code == 0, done.output
    assert "the format yaml" in done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(row["attributes"]) for row in rows] == [["brand", "count"]] * 2
    done = invoke("explain", tuned, "--model", tuned, "--json")
    contract = json.loads(done.stdout)
    assert (contract["format"], contract["decoding"]["layout"]) == ("yaml", "gapped")
    jsonl(test, [{"category": "Tea", "text": "x", "attributes": {"Origin": "Assam"}}])
    done = invoke("evaluate", test, "--model", tuned)
    assert "not trained on these attributes of Tea" in done.stderr
    jsonl(test, ROWS[:2])


@pytest.mark.slow
def test_two_models_are_compared(tuned: Path) -> None:
    test, base = tuned.parent / "test.jsonl", tuned.parent / "base"
    done = invoke("evaluate", test, "--model", f"{base},{tuned}", "--json", "--details")
    assert done.exit_code == 0, done.output
    first, second = json.loads(done.stdout)
    assert (first["model"], first["decoding"]) == (str(base), "isolated")
    assert (second["model"], second["decoding"]) == (str(tuned), "isolated:layout=gapped")
    assert second["against"]["model"] == str(base)
    assert second["against"]["pairs"] == 4
    assert first["predictions"][0]["predicted"].keys() == {"Brand", "Count"}


def test_a_calibration_is_fitted_in_the_same_way(tuned: Path) -> None:
    held_out = jsonl(tuned.parent / "held_out.jsonl", [ROWS[0]])
    done = invoke("calibrate", held_out, "--model", tuned)
    assert "with the format yaml, the decoding isolated:layout=gapped" in done.stderr


def test_names_of_decodings() -> None:
    for name in (*PRESETS, "paper:documents_per_prompt=2:k_max=none", "isolated:constrain=nothing"):
        assert resolve_decoding(decoding_name(resolve_decoding(name))) == resolve_decoding(name)
    assert [decoding_name(config) for config in PRESETS.values()] == list(PRESETS)


@pytest.mark.parametrize(
    "written",
    [
        "[]",
        "{",
        '{"format": 3}',
        '{"decoding": "fast"}',
        '{"schemas": {"Tea": "shop.py:Tea"}}',
        '{"dtype": "float8"}',
    ],
)
def test_a_broken_file_is_named(folder: Path, tmp_path: Path, written: str) -> None:
    path = folder / FILE
    path.write_text(written)
    with pytest.raises(ModelError, match=r"schemax\.json cannot be used"):
        read_trained(path)
    with pytest.raises(ModelError, match=r"schemax\.json cannot be used"):
        Extractor.from_pretrained(folder, device="cpu")
    refused(invoke("extract", folder, tmp_path / "none.jsonl"), "schemax.json cannot be used")


@pytest.mark.parametrize(("speedup", "taken"), [(2.0, torch.bfloat16), (0.5, torch.float32)])
def test_bfloat16_where_the_processor_is_fast(
    folder: Path, monkeypatch: pytest.MonkeyPatch, speedup: float, taken: torch.dtype
) -> None:
    monkeypatch.setattr(precision, "bfloat16_speedup", lambda: speedup)
    assert read_dtype(folder) == torch.float32
    write_trained(TrainedWith(dtype="bfloat16"), folder)
    assert read_dtype(folder) == taken
    assert read_dtype(folder, dtype="float32") == torch.float32


def read_dtype(folder: Path, **options: Any) -> torch.dtype:
    loaded = load(folder, device="cpu", **options)
    found: torch.dtype = loaded.model.dtype
    return found


def test_a_template_is_never_a_path(tmp_path: Path) -> None:
    """A document could name a file of the user's, and so show the model what stands in it."""
    document = {"title": "Tea", "type": "object", "properties": {}, "template": "/etc/passwd"}
    write_trained(TrainedWith(schemas={"Tea": document}), tmp_path)
    assert read_trained(tmp_path / FILE).schemas["Tea"]["template"] == "/etc/passwd\n"


class Coded(AttrSchema):
    brand: str | None = attr("Brand")


@pytest.mark.parametrize(("decoding", "name"), [("isolated", "verbatim"), ("paper", "paper")])
def test_the_default_template_is_written_as_it_was(
    backend: tokenizers.Tokenizer, decoding: str, name: str
) -> None:
    """Alone for all categories, or for those that name none, where others do."""
    from schemax.compiler import compile_schema
    from schemax.training.card import trained_with

    compiled = {c: compile_schema(Coded, backend, eos_ids=[0], decoding=decoding) for c in "ab"}
    default = template_source(name)
    assert trained_with(compiled, dict.fromkeys("ab"))[1] == default
    own = "{% for d in documents %}{{ d.text }}\n{% endfor %}"
    trained, shared = trained_with(compiled, {"a": own, "b": None})
    assert shared is None
    assert {c: one["template"] for c, one in trained.schemas.items()} == {"a": own, "b": default}


def test_different_templates_and_what_no_document_holds(backend: tokenizers.Tokenizer) -> None:
    import jinja2

    from schemax.compiler import compile_schema
    from schemax.training.card import trained_with

    texts = {name: name + " {% for d in documents %}{{ d.text }}\n{% endfor %}" for name in "ab"}
    compiled = {name: compile_schema(Coded, backend, eos_ids=[0]) for name in texts}
    trained, shared = trained_with(compiled, texts)
    assert shared is None
    assert {name: one["template"] for name, one in trained.schemas.items()} == texts
    with pytest.warns(UserWarning, match="the template of 'a' is code"):
        trained_with(compiled, texts | {"a": jinja2.Template(texts["a"])})
