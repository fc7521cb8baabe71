"""`schemax fit`: labelled documents in, a prompt file out, whatever stops it in between."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, jsonl, refused, rows
from conftest import tiny_model
from pydantic import create_model

from schemax import AttrSchema, Extractor
from schemax.commands.fit import Args, next_words
from schemax.compiler import TextCodec
from schemax.errors import InputError
from schemax.evaluation.examples import Example
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.evaluation.scores import score_predictions
from schemax.extraction.prompt_file import read_prompt_file, write_prompt_file
from schemax.results import Extraction
from schemax.training.fitting import fit
from schemax.training.fitting.search import Candidate, Search

BRANDS = ["LG", "Sony", "Samsung", "Philips", "Hisense", "TCL", "Sharp", "Loewe", "Grundig", "JVC"]


def label(n: int, category: str = "television") -> dict[str, Any]:
    """As the report exports what people have corrected."""
    brand, size = BRANDS[n % len(BRANDS)], 32 + n
    return {
        "id": f"r{n}",
        "category": category,
        "text": f"{brand} {size} inch TV{', 4K' * (n % 3 > 0)}",
        "attributes": {"brand": brand, "size": size, "resolution": "4K" if n % 3 else None},
    }


LABELS = [label(n) for n in range(12)]


@pytest.mark.slow
def test_labels_become_a_prompt_that_other_verbs_take(run: Run, tmp_path: Path) -> None:
    labels = jsonl(tmp_path / "corrected.jsonl", LABELS)
    result = run("fit", labels, "--time", "10m", "--model", "embedded")
    assert result.exit_code == 0, result.output
    assert re.search(
        r"^expected: about \d+ of \d+ trials, in \d+ of 600 seconds;", result.stderr, re.MULTILINE
    )
    trials = [line for line in result.stderr.splitlines() if line.startswith("trial ")]
    assert "the best before it" not in trials[0]
    assert all("on 4 documents, the best before it 0." in line for line in trials[1:])
    # The embedded model's template shows no demonstrations, so none are tried.
    assert all("demonstrations as now" in line for line in trials)
    assert len(set(trials)) == len(trials)
    assert "+-" not in result.output
    assert "2 documents held out, too few to tell" in result.stdout
    assert re.search(
        r"^F1: 0\.\d+ before, 0\.\d+ with the prompt file$", result.stdout, re.MULTILINE
    )
    history = rows((tmp_path / "_prompt.json.fit.jsonl").read_text("utf-8"))
    recorded = [row for row in history if "trial" in row]
    assert [row["trial"] for row in recorded] == [*range(1, len(trials) + 1)]
    assert all(row["candidate"] in line for row, line in zip(recorded, trials, strict=True))
    prompt = read_prompt_file(tmp_path / "prompt.json")
    assert prompt.decoding is not None
    known = {row["text"]: row["attributes"] for row in LABELS}
    for shown in prompt.demonstrations:
        stated = {name: value for name, value in known[shown.text].items() if value is not None}
        assert {k: v for k, v in shown.attributes.items() if v is not None} == {
            name: str(value) for name, value in stated.items()
        }
    source = jsonl(tmp_path / "in.jsonl", [{"text": "Sony 55 inch TV", "category": "television"}])
    with_prompt = ("--model", "embedded", "--prompt", "prompt.json")
    for command in (("evaluate", labels), ("extract", "television", source)):
        read = run(*command, *with_prompt)
        assert read.exit_code == 0, read.output
    assert rows(read.stdout)[0]["attributes"]["brand"] == "Sony"


@pytest.fixture
def borrowing(saved_model: Path) -> tuple[Extractor, list[Example], dict[str, Any]]:
    """A model that schemax did not train, and labels whose schema borrows demonstrations."""
    labels = [label(n) for n in range(60)]
    examples = [
        Example(row["category"], row["text"], {"brand": row["attributes"]["brand"]})
        for row in labels
    ]
    schema: Any = create_model(
        "Television",
        __base__=AttrSchema,
        __cls_kwargs__={"category": "television"},
        brand=(str | None, None),
    )
    return Extractor.from_pretrained(saved_model), examples, {"television": schema}


def instruction(extractor: Extractor, schema: Any) -> str:
    ids = extractor.compile(schema).encode(["x"])[0].instruction
    return str(extractor.tokenizer.decode(list(ids)))


@pytest.mark.slow
def test_a_file_changes_nothing_that_it_did_not_choose(
    borrowing: tuple[Extractor, list[Example], dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Search, "search", lambda _: None)
    extractor, examples, schemas = borrowing
    done = fit(extractor, examples[:20], schemas)
    assert done.changes_nothing
    assert done.after is done.before
    write_prompt_file(done.prompt, tmp_path / "prompt.json")
    fitted = extractor.with_prompt(tmp_path / "prompt.json")
    television = schemas["television"]
    assert "Vestel" in instruction(extractor, television)
    assert instruction(fitted, television) == instruction(extractor, television)
    for one in (extractor, fitted):
        config, _ = one.defaults.decoding_and_template(television)
        assert (config.constrain, config.contextual_calibration) == ("document", True)


def test_a_prompt_that_is_worse_by_the_interval_is_refused(
    borrowing: tuple[Extractor, list[Example], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of the documents held out are given here: right ones before, none after."""

    class Likeness(Search):
        def run(self) -> Candidate:
            super().run()
            return self.by_likeness(2)

    def answers(reader: Extractor, documents: list[Example], *_: Any, **__: Any) -> list[Any]:
        is_shown = reader.defaults.prompt.demonstrations
        return [{"brand": None} if is_shown else document.stated for document in documents]

    run = "schemax.training.fitting.run"
    monkeypatch.setattr(Likeness, "search", lambda _: None)
    monkeypatch.setattr(f"{run}.Search", Likeness)
    monkeypatch.setattr(f"{run}.extractions_of", answers)
    monkeypatch.setattr(
        f"{run}.scores_of", lambda examples, read, _: score_predictions(examples, read)
    )
    with pytest.raises(
        InputError, match=r"refused: the 2 most alike .* 12 documents held out.* -1"
    ):
        fit(*borrowing)


@dataclass
class Clock:
    """A time that passes while documents are read, and the timers that it ends."""

    now: float = 0.0
    timers: list[Any] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self.timers if timer.end <= self.now]:
            timer.cancel()
            timer.function()


class ClockTimer:
    def __init__(self, clock: Clock, seconds: float, function: Callable[[], None]) -> None:
        self.clock, self.end, self.function = clock, clock.now + seconds, function

    def start(self) -> None:
        self.clock.timers.append(self)

    def cancel(self) -> None:
        if self in self.clock.timers:
            self.clock.timers.remove(self)


@dataclass
class Reading:
    """Extractions that take their time. The value is the number of demonstrations."""

    clock: Clock
    documents: int
    demonstrations: int
    seconds: float
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True

    def __iter__(self) -> Iterator[Extraction[Any]]:
        for place in range(self.documents):
            self.clock.spend(self.seconds)
            if self.is_closed:
                return
            yield Extraction(self.demonstrations, place, None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for place in ("run", "measuring"):
        monkeypatch.setattr(f"schemax.training.fitting.{place}.time", clock)
    monkeypatch.setattr("schemax.training.fitting.measuring.Timer", partial(ClockTimer, clock))
    return clock


@pytest.fixture
def reading(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], list[Reading]]:
    """Has documents take a second, and `each` more for a demonstration; with any, all is right."""

    def slowed(each: float) -> list[Reading]:
        readings: list[Reading] = []

        def extractions(self: Extractor, records: Any, *_: Any, **__: Any) -> Reading:
            shown = len(self.defaults.prompt.demonstrations)
            shown = self.defaults.decoding.nearest_examples or shown
            readings.append(Reading(clock, len(list(records)), shown, 1 + each * shown))
            return readings[-1]

        monkeypatch.setattr(Extractor, "extractions", extractions)
        return readings

    def outcome(_: Any, __: int, item: Extraction[Any]) -> tuple[int, ...]:
        return (0, 0, 0, 1, 0) if item.value else (0, 0, 1, 0, 0)

    monkeypatch.setattr("schemax.training.fitting.measuring.Work.outcome", outcome)
    return slowed


@pytest.mark.parametrize("seconds", [50, 100, 200, 1000])
@pytest.mark.parametrize(("each", "enough"), [(0.0, 100), (0.1, 100), (3.0, 1000)])
def test_the_time_holds_however_slow_demonstrations_are(
    borrowing: tuple[Extractor, list[Example], dict[str, Any]],
    clock: Clock,
    reading: Callable[[float], list[Reading]],
    seconds: int,
    each: float,
    enough: int,
) -> None:
    """enough: seconds in which demonstrations are tried, and the held-out documents read."""
    readings = reading(each)
    done = fit(*borrowing, seconds=seconds)
    assert clock.now <= 1.1 * seconds
    assert bool(done.chosen.shown) == (seconds >= enough)
    assert done.after.products == 12
    # Nothing is begun that is expected to take longer than there is time.
    assert each or not any(one.is_closed for one in readings)


def test_a_time_that_is_too_short_is_said_in_time(
    borrowing: tuple[Extractor, list[Example], dict[str, Any]],
    clock: Clock,
    reading: Callable[[float], list[Reading]],
) -> None:
    reading(0.0)
    with pytest.raises(InputError, match="10 seconds are too few"):
        fit(*borrowing, seconds=10)
    assert clock.now <= 11


def test_demonstrations_beyond_the_context_have_no_right_value(
    codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("qwen3", codec.vocab_size, max_position_embeddings=1500)
    extractor = Extractor(model, codec, eos_ids=codec.eos_ids)
    outcomes: list[Any] = []

    def search(self: Search) -> None:
        outcomes.append(self.measure(self.sized(4), self.all_rows))

    monkeypatch.setattr(Search, "search", search)
    examples = [Example("set", f"LG {n} " + "inch " * 300, {"brand": "LG"}) for n in range(10)]
    done = fit(extractor, examples, annotated_schemas(examples), format="json")
    assert done.changes_nothing
    assert outcomes[0].tolist() == [[0, 0, 1, 0, 0]] * 3


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({}, "SCHEMA INPUT"),
        (
            {"model": "my model", "dtype": "bfloat16"},
            "SCHEMA INPUT --model 'my model' --dtype bfloat16",
        ),
        (
            {"schemas": "shop.py:Small", "server": "http://s/v1"},
            "shop.py:Small INPUT --server http://s/v1",
        ),
        ({"schemas": "names.json"}, "SCHEMA INPUT"),
    ],
    ids=str,
)
def test_the_hint_names_the_model(args: dict[str, Any], expected: str) -> None:
    assert next_words(Args(data=Path("labels.jsonl"), **args)) == expected


@pytest.fixture
def several(model: Path) -> tuple[Extractor, list[Example]]:
    examples = [
        Example(
            category=row["category"],
            text=row["text"],
            attributes={name: v if v is None else str(v) for name, v in row["attributes"].items()},
        )
        for row in [*LABELS, *(label(n, "monitor") for n in range(8))]
    ]
    return Extractor.from_pretrained(model), examples


@pytest.mark.slow
def test_every_category_has_its_own_demonstrations(
    several: tuple[Extractor, list[Example]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a model of random weights, which reads best what the search is told it does."""
    extractor, examples = several
    from schemax.training.fitting.measuring import Work

    def outcome(work: Any, row: int, item: Any) -> Any:
        shown = int(bool(told["shown"]))
        return (0, 0, 1 - shown, shown, 0)

    told: dict[str, Any] = {}
    prompt = Work.prompt
    monkeypatch.setattr(
        Work,
        "prompt",
        lambda *args: told.update(shown=(file := prompt(*args)).demonstrations) or file,
    )
    monkeypatch.setattr(Work, "outcome", outcome)
    lines: list[str] = []
    done = fit(extractor, examples, annotated_schemas(examples), seconds=600, tell=lines.append)
    shown = {one.category for one in done.prompt.demonstrations}
    assert shown == {"television", "monitor"}
    assert all(one.text for one in done.prompt.demonstrations)
    assert "demonstrations in each of 2 categories" in lines[2]
    # What was measured is what the file makes of the same documents.
    (television,) = {row.category for row in examples} - {"monitor"}
    fitted = extractor.with_prompt(done.prompt)
    schemas = annotated_schemas(examples)
    written = fitted.extractions([], schemas, category="category").compiled
    assert done.chosen.shown.keys() == {television, "monitor"}
    for category, rows_shown in done.chosen.shown.items():
        ids = written[category].encode(["x"])[0].instruction
        text = extractor.tokenizer.decode(list(ids))
        for row in rows_shown:
            assert examples[row].text in text


def test_examples_by_likeness_are_all_that_are_not_held_out(
    several: tuple[Extractor, list[Example]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search takes them here, however good they are for a model of random weights."""

    class Likeness(Search):
        def run(self) -> Candidate:
            super().run()
            return self.by_likeness(2)

    monkeypatch.setattr(Likeness, "search", lambda _: None)
    monkeypatch.setattr("schemax.training.fitting.run.Search", Likeness)
    extractor, examples = several
    done = fit(extractor, examples, annotated_schemas(examples), seconds=600)
    assert done.prompt.decoding is not None
    assert done.prompt.decoding.nearest_examples == done.chosen.nearest == 2
    held_out = done.after.products
    assert len(done.prompt.demonstrations) == len(examples) - held_out
    assert sum(map(len, done.chosen.shown.values())) < len(examples) - held_out


@pytest.mark.release
def test_a_run_that_is_killed_goes_on(model: Path, tmp_path: Path, run: Run) -> None:
    labels = jsonl(tmp_path / "labels.jsonl", LABELS)
    args = ("fit", labels, "--model", str(model), "--time", "10m")
    sidecar = tmp_path / "_killed.json.fit.jsonl"
    command = [sys.executable, "-m", "schemax", *args, "-o", "killed.json"]
    settings = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    with subprocess.Popen(command, cwd=tmp_path, env=settings, stderr=subprocess.PIPE) as killed:
        while killed.poll() is None:
            if sidecar.is_file() and sidecar.read_bytes().count(b"\n") > 8:
                killed.send_signal(signal.SIGKILL)
                break
            time.sleep(0.01)
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
    known = sidecar.read_bytes().count(b'"key"')
    resumed = run(*args, "-o", "killed.json")
    assert resumed.exit_code == 0, resumed.output
    assert f"{known} measured answers are in" in resumed.stderr
    whole = run(*args, "-o", "whole.json")
    assert "measured answers" not in whole.stderr
    assert (tmp_path / "killed.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    trials = [
        [line for line in result.stderr.splitlines() if line.startswith("trial ")]
        for result in (resumed, whole)
    ]
    told = [[line.partition(": ")[2] for line in some] for some in trials]
    assert told[0] == told[1]


@pytest.mark.slow
def test_other_labels_begin_anew(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = jsonl(tmp_path / "labels.jsonl", LABELS)
    args = ("fit", labels, "--time", "1m")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("schemax.training.fitting.run.calibrate", interrupt)
        patch.setattr("schemax.training.fitting.run.extractions_of", interrupt)
        assert run(*args).exit_code == 130
    assert (tmp_path / "_prompt.json.fit.jsonl").is_file()
    jsonl(tmp_path / "labels.jsonl", [*LABELS, label(12)])
    result = run(*args, "--time", "0.001s")
    assert "measured answers" not in result.stderr
    refused(result, "0.001 seconds are too few")


@pytest.mark.parametrize(
    ("lines", "args", "said"),
    [
        (LABELS[:5], (), ["'television' has 5 different documents", "8 or more"]),
        ([], (), ["contains no documents"]),
        (LABELS, ("--time", "soon"), ["--time must be a time such as 90s", "'soon'"]),
        (LABELS, ("--time", "0"), ["--time must be"]),
        (LABELS, ("-o", "nowhere/prompt.json"), ["-o names a file"]),
        (LABELS, ("-o", "."), ["-o names a file"]),
        (LABELS, ("--template", "none.jinja"), ["unknown template 'none.jinja'"]),
        (LABELS, ("--decoding", "fast"), ["decoding must be one of"]),
        ([{**LABELS[0], "text": 3}], (), ["line 1", "text: expected text"]),
    ],
    ids=lambda value: str(value)[-30:],
)
def test_what_cannot_be_fitted_is_refused(
    run: Run, tmp_path: Path, lines: list[Any], args: tuple[str, ...], said: list[str]
) -> None:
    refused(run("fit", jsonl(tmp_path / "labels.jsonl", lines), *args), *said)
    assert not (tmp_path / "prompt.json").exists()


@pytest.mark.slow
def test_test_documents_are_never_shown(run: Run, tmp_path: Path) -> None:
    labels = jsonl(tmp_path / "labels.jsonl", LABELS)
    tested = jsonl(tmp_path / "test.jsonl", LABELS[2:4])
    result = run("fit", labels, "--test", tested, "--time", "10m")
    assert result.exit_code == 0, result.output
    assert "dropped from training: 2 documents" in result.stderr
    for row in LABELS[2:4]:
        assert row["text"] not in (tmp_path / "prompt.json").read_text("utf-8")
    assert "--test" in run("fit", "--help").stdout


@pytest.mark.slow
def test_labels_that_the_schema_refuses_are_never_shown(run: Run, tmp_path: Path) -> None:
    good = [row | {"attributes": {"brand": row["attributes"]["brand"]}} for row in LABELS]
    odd = [label(n) | {"attributes": {"smart": "perhaps"}} for n in range(12, 40)]
    labels = jsonl(tmp_path / "labels.jsonl", [*good, *odd])
    args = ("--schemas", "shop.py:Small", "--time", "10m")
    result = run("fit", labels, *args)
    assert result.exit_code == 0, result.output
    assert "never shown: document r" in result.stderr
    assert "perhaps" not in json.dumps(json.loads((tmp_path / "prompt.json").read_text("utf-8")))


ADDRESSES = Path(__file__).parents[1] / "data" / "tasks" / "address.jsonl"


def addresses() -> list[Example]:
    """Postal addresses, with every part that they do not state as null."""
    rows = [json.loads(line) for line in ADDRESSES.read_text("utf-8").splitlines()]
    names = dict.fromkeys(name for row in rows for name in row if name != "text")
    labels = [{name: str(row[name]) if name in row else None for name in names} for row in rows]
    return [
        Example("address", row["text"], stated) for row, stated in zip(rows, labels, strict=True)
    ]


@pytest.mark.release
@pytest.mark.llm
def test_twenty_labels_help_a_pretrained_model(smollm2: Path) -> None:
    labelled = addresses()
    extractor = Extractor.from_pretrained(smollm2, dtype="float32")
    done = fit(extractor, labelled, annotated_schemas(labelled), seconds=150)
    assert len(done.prompt.demonstrations) >= 4
    assert done.after.protocol.f1 > done.before.protocol.f1 + 0.1
    assert done.after.strict.f1 > done.before.strict.f1
    assert done.gain() is None  # too few held-out documents for an interval
    # The trials that decided were of other documents than those that tell the gain.
    decided = {trial.documents for trial in done.trials}
    assert max(decided) + done.after.products + len(done.chosen.shown["address"]) <= len(labelled)
