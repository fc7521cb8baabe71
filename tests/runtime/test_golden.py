"""Outputs of the engine are those that are frozen in tests/golden; see golden_outputs.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from golden_cases import CASES
from golden_outputs import FOLDER, Extractors, differences, file_rows, outputs, read, write

from schemax.compiler import TextCodec

pytestmark = pytest.mark.filterwarnings("ignore:.*is asked by chat")

Make = Callable[[Extractors], Any]


@pytest.fixture(scope="module")
def extractors(codec: TextCodec) -> Iterator[Extractors]:
    made = Extractors(codec)
    yield made
    made.close()


@pytest.fixture(scope="module")
def moved(codec: TextCodec) -> Iterator[Extractors]:
    made = Extractors(codec, are_moved=True)
    yield made
    made.close()


@pytest.fixture
def check(
    request: pytest.FixtureRequest, extractors: Extractors, moved: Extractors
) -> Callable[[str, Make], None]:
    """Compares outputs with what is frozen under a name; --write-golden freezes them."""

    def compare(name: str, make: Make) -> None:
        now = make(extractors)
        if request.config.getoption("--write-golden"):
            torch.set_num_threads(2)
            try:
                ties = [*differences(now, make(moved))]
            finally:
                torch.set_num_threads(1)
            assert not ties, f"{name} is a near tie; change its seed in golden_cases.py"
            write(name, now)
        found = [*differences(read(name), now)]
        assert not found, "\n".join([f"{len(found)} differences in {name}:", *found[:40]])

    return compare


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if case.is_slow else ())
        for name, case in CASES.items()
    ],
)
def test_outputs_are_those_that_are_frozen(name: str, check: Callable[[str, Make], None]) -> None:
    check(name, lambda extractors: outputs(CASES[name], extractors))


@pytest.mark.slow
def test_rows_of_files_are_those_that_are_frozen(
    check: Callable[[str, Make], None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    check("files", lambda some: file_rows(tmp_path_factory.mktemp("files"), some))


def test_nothing_else_is_frozen() -> None:
    """A case that is gone or renamed leaves no file behind, and all files together are small."""
    files = sorted(FOLDER.iterdir())
    assert [file.name for file in files] == sorted(f"{name}.json.gz" for name in [*CASES, "files"])
    assert sum(file.stat().st_size for file in files) < 400_000


def test_differences_are_told_where_they_are() -> None:
    frozen: dict[str, Any] = {"slots": [{"ids": [1, 2], "logprobs": [-0.5]}], "value": 1.0}
    near: dict[str, Any] = {"slots": [{"ids": [1, 2], "logprobs": [-0.5011]}], "value": 1.0}
    assert not [*differences(frozen, near)]
    for changed, said in (
        ({**near, "value": 1.001}, [".value: 1.0 was frozen, and is 1.001"]),
        ({**near, "value": 1}, [".value: 1.0 was frozen, and is 1"]),
        ({**near, "value": None}, [".value: 1.0 was frozen, and is None"]),
        ({**near, "slots": []}, [f".slots: {frozen['slots']} was frozen, and is []"]),
        (
            {**near, "slots": [{"ids": [1, 3], "logprobs": [-0.6]}]},
            [
                ".slots[0].ids[1]: 2 was frozen, and is 3",
                ".slots[0].logprobs[0]: -0.5 was frozen, and is -0.6",
            ],
        ),
    ):
        assert [*differences(frozen, changed)] == said
