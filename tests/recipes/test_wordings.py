"""What `recipes.wordings` and `recipes.f1_over_passes` read, without a pretrained model."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import tiny_model
from tokenizers import Tokenizer

from recipes.f1_over_passes import PAGE, points
from recipes.wordings import counts, main, tasks, televisions, wordings
from schemax import Extractor
from schemax.evaluation.scores import f1_of


@pytest.fixture(scope="module")
def extractor(backend: Tokenizer) -> Extractor:
    return Extractor(tiny_model("qwen3", backend.get_vocab_size()), backend)


@pytest.mark.parametrize("name", wordings())
def test_every_wording_is_a_prompt(extractor: Extractor, name: str) -> None:
    (schema,) = televisions()[1].values()
    compiled = extractor.compile(schema, template=wordings()[name], examples=())
    assert ("Samsung; LG" in compiled.prompt.instruction) == (name != "no examples")


@pytest.mark.slow
def test_labels_are_those_of_the_schemas(extractor: Extractor) -> None:
    """What is stated is found under the names that predictions have."""
    for examples, schemas in (televisions(), tasks()):
        few = examples[::9]
        found, _ = counts(extractor, (few, schemas), None, "isolated:k_max=2:max_retries=0", None)
        stated = sum(value is not None for one in few for value in one.attributes.values())
        assert found[:, 2:].sum() == stated  # left out, right or wrong: nothing else is stated
        assert 0 <= f1_of(found.sum(axis=0)) < 1


@pytest.mark.slow
def test_it_prints_a_line_for_every_wording(
    saved_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--sets", "televisions", "--wordings", "verbatim,null again", "--no-examples"]
    main([str(saved_model), *settings, "--decoding", "isolated:k_max=2:max_retries=0"])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head == "televisions: 30 documents"
    assert "verbatim" in first
    assert "(+0.000 to +0.000)" in first
    assert "null again" in second


def test_the_picture_has_the_rows_of_the_page() -> None:
    found = points(PAGE.read_text("utf-8"))
    assert {"isolated:constrain=types", "isolated, the default", "autoregressive"} <= {
        one.name for one in found
    }
    assert all(one.low < one.f1 < one.high for one in found)
    with pytest.raises(ValueError, match="no table"):
        points("")
