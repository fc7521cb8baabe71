"""On a local Ray, with two actors: the rows of the single process, whoever dies in between."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from command_line import Run, jsonl, process, refused, rows, runner, set_part_rows

import schemax
import schemax.io.ray
from schemax import AttrSchema, InputError, SchemaError
from schemax.commands.extract import Args as ExtractOptions
from schemax.extraction.documents import RecordFields, read_documents
from schemax.io import dataframes
from schemax.io.ray.pool import Pool

ray = pytest.importorskip("ray")

# It starts a dozen processes. What is ignored is raised inside Ray, about itself.
pytestmark = [
    pytest.mark.slow,
    *(
        pytest.mark.filterwarnings(f"ignore::{kind}")
        for kind in ("DeprecationWarning", "FutureWarning", "ResourceWarning")
    ),
]

# Slow, so that there is time to kill somebody; `PIDS` tells who computes.
DECLARATION = '''
import os, time
from enum import Enum
from typing import Literal
from pydantic import model_validator
from schemax.attributes import attr
from schemax.extraction.schema import AttrSchema

class Kind(Enum):
    TV = "tv"
    RADIO = "radio"

class Slow(AttrSchema, category="television"):
    """Short budgets."""
    brand: str | None = attr("Manufacturer", k_max=6)
    band: Literal["UHF", "VHF", "FM", "AM"]
    kind: Kind
    smart: bool

    @model_validator(mode="after")
    def slow(self):
        if PIDS is not None:
            time.sleep(0.01)
            with open(PIDS, "a") as handle:
                handle.write(f"{os.getpid()}\\n")
        return self
'''


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    """Three CPUs by name, so that two actors leave one to read with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        context = ray.init(
            address="local",
            num_cpus=3,
            include_dashboard=False,
            object_store_memory=150_000_000,
            logging_level="ERROR",
            log_to_driver=False,
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield context
        ray.shutdown()


@pytest.fixture
def run(saved_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands in a folder that holds `slow.py`."""
    (tmp_path / "slow.py").write_text(f"PIDS = {str(tmp_path / 'pids')!r}\n{DECLARATION}")
    return runner(tmp_path, saved_model, monkeypatch)


def declared(pids: Path | None = None) -> type[AttrSchema]:
    """A schema as a script or a notebook declares it: no other process can import it."""
    namespace: dict[str, Any] = {"__name__": "__main__", "PIDS": pids and str(pids)}
    exec(compile(DECLARATION, "notebook", "exec", dont_inherit=True), namespace)
    made: type[AttrSchema] = namespace["Slow"]
    return made


def products(count: int) -> list[dict[str, Any]]:
    made = [{"id": f"r{n}", "t": f"Brand{n} 4K {'long ' * (n % 7)}"} for n in range(count)]
    made[count // 2]["t"] = " "
    return made


def pids(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def kill_one(folder: Path, *, after: int = 5) -> threading.Thread:
    """Kills the first process that has computed so many rows."""

    def kill() -> None:
        while max(map(pids(folder).count, pids(folder)), default=0) < after:
            time.sleep(0.02)
        os.kill(max(pids(folder), key=pids(folder).count), signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


@pytest.mark.release
def test_a_dataset_has_the_rows_of_one_process_though_an_actor_dies(
    saved_model: Path, tmp_path: Path
) -> None:
    made = products(240)
    dataset = ray.data.from_items(made, override_num_blocks=8)
    found = schemax.io.ray.extract(
        dataset,
        declared(tmp_path / "pids"),
        model=saved_model,
        text="t",
        concurrency=2,
        batch_rows=40,
    )
    killer = kill_one(tmp_path)
    table = sorted(found.take_all(), key=lambda row: int(row["id"][1:]))
    killer.join(5)
    assert not killer.is_alive()
    assert len(set(pids(tmp_path))) >= 3  # two, and the one in the place of the dead
    alone = schemax.Extractor.from_pretrained(saved_model)
    expected = list(alone.stream(made, declared(), text="t"))
    expected.sort(key=lambda item: item.index)
    assert [row["id"] for row in table] == [row["id"] for row in made]
    for row, item in zip(table, expected, strict=True):
        attributes = item.to_row()["attributes"] or dict.fromkeys(declared().model_fields)
        assert {name: row[name] for name in attributes} == attributes
        assert (row["_error"] is None) is item.ok
    assert table[120]["_error"] == "the text is empty"
    assert len({(row["band"], row["kind"], row["smart"]) for row in table}) >= 2
    assert found.schema().names[:2] == ["id", "t"]
    types = dict(zip(found.schema().names, found.schema().types, strict=True))
    columns = schemax.arrow_schema(declared())
    assert all(types[name] == columns.field(name).type for name in columns.names[2:])


def test_what_is_wrong_is_said_before_an_actor_starts() -> None:
    dataset = ray.data.from_items([{"id": "a", "band": "UHF"}]).materialize()
    schema = declared()
    with pytest.raises(InputError, match=r"both have a column 'band'.*keep=\['id'\]"):
        schemax.io.ray.extract(dataset, schema)
    with pytest.raises(InputError, match="keep names 'sku', but the dataset has id, band"):
        schemax.io.ray.extract(dataset, schema, keep=["sku"])
    with pytest.raises(InputError, match=r"takes a ray\.data\.Dataset, not list"):
        schemax.io.ray.extract([{"id": "a"}], schema)
    with pytest.raises(TypeError, match="no option 'decodng', perhaps 'decoding'; it has text, id"):
        schemax.io.ray.extract(dataset, schema, keep=[], decodng="paper")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="unknown format 'toml'"):
        schemax.io.ray.extract(dataset, schema, keep=[], format="toml")
    with pytest.raises(schemax.TemplateError, match="unknown template 'nosuch'"):
        schemax.io.ray.extract(dataset, schema, keep=[], template="nosuch")
    with pytest.raises(SchemaError, match="no class derived from pydantic"):
        schemax.io.ray.extract(dataset, dict[str, int], keep=[])  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="no category is given"):
        schemax.io.ray.extract(dataset, {}, keep=[])
    with pytest.raises(ValueError, match="batch_rows must be at least 1"):
        schemax.io.ray.extract(dataset, schema, keep=[], batch_rows=0)
    lock = threading.Lock()
    with pytest.raises(InputError, match="cannot be sent to actors: TypeError"):
        schemax.io.ray.extract(dataset, schema, keep=[], model=lambda: lock)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("concurrency", "gpus", "cpus", "said"),
    [
        (0, None, None, "concurrency must be a number of actors"),
        ((3, 2), None, None, "concurrency must be a number of actors"),
        ("2", None, None, "concurrency must be a number of actors"),
        (1, -1, None, "num_gpus must be a number of 0 or more"),
        (1, 1.5, None, "num_gpus must be a whole number or less than 1"),
        (2, 1, None, "no room for 2 actors with 1 GPUs and 1 CPUs each, only for 0"),
        (2, None, 2, "no room for 2 actors with 0 GPUs and 2 CPUs each, only for 1"),
    ],
)
def test_actors_that_cannot_be_had(concurrency: Any, gpus: Any, cpus: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Pool.of(concurrency, gpus, cpus)


def test_actors_share_what_there_is() -> None:
    assert Pool.of(None, None, None) == Pool(1, 1, 0.0, 2.0)
    assert Pool.of((1, 2), None, None) == Pool(1, 2, 0.0, 1.0)
    assert Pool.of(8, 0, None) == Pool(8, 8, 0.0, 0.25)
    assert Pool.of(2, 0, None).device("auto") == "cpu"
    assert not Pool.of(8, 0, None).is_greedy()
    with pytest.warns(UserWarning, match="the actors take all CPUs that Ray has"):
        schemax.io.ray.extract(ray.data.from_items(["x"]), declared(), model="x", num_cpus=3)


@pytest.mark.parametrize(
    ("nodes", "concurrency", "expected"),
    [
        ([{"memory": 1.0}, {"CPU": 8.0}, {"CPU": 4.0}], None, Pool(2, 2, 0.0, 3.0)),
        ([{"CPU": 0.0}, {"CPU": 8.0}], 2, Pool(2, 2, 0.0, 3.0)),
        ([{}, {"CPU": 8.0, "GPU": 2.0}], None, Pool(2, 2, 1.0, 1.0)),
        ([{"CPU": 1.0}], None, Pool(1, 1, 0.0, 0.0)),
        ([{"CPU": 1.0}, {"CPU": 1.0}], None, Pool(2, 2, 0.0, 0.5)),
        ([{"CPU": 1.0}, {"CPU": 8.0}], 4, Pool(4, 4, 0.0, 0.25)),
    ],
)
def test_machines_without_cpus_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[dict[str, float]],
    concurrency: int | None,
    expected: Pool,
) -> None:
    monkeypatch.setattr("schemax.io.ray.pool.machines", lambda: nodes)
    assert Pool.of(concurrency, None, None) == expected


def test_a_record_is_shown_as_that_of_a_file() -> None:
    day = date(2026, 1, 31)
    batch = pyarrow.table({"t": [b"LG", b"\xff"], "x": [{"made": [day], "by": b"K"}, None]})
    good, broken = dataframes.records_of(batch, "pyarrow", None)
    assert good == {"t": "LG", "x": {"made": ["2026-01-31"], "by": "K"}}
    (document,) = read_documents([broken], RecordFields())
    assert "UTF-8" in (document.problem or "")


@pytest.mark.release
def test_files_are_those_of_one_process_whoever_dies(
    run: Run, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the driver, whose run goes on with Ray and without; then, with Ray, an actor."""
    source = jsonl(tmp_path / "in.jsonl", products(240))
    with open(source, "a") as handle:
        handle.write('{"id": "broken\n')
    args = ("extract", "slow.py:Slow", "in.jsonl", "--max-errors", "2")
    set_part_rows(30, monkeypatch)
    on_ray = ("-o", "a.parquet", "--ray", "--actors")
    monkeypatch.setenv("RAY_ADDRESS", cluster.address_info["address"])
    code = (
        "from schemax.commands.cli import main; import schemax.io.checkpoint as checkpoint; "
        "checkpoint.PART_ROWS = 30; main()"
    )
    with process("-c", code, *args, *on_ray, "1", cwd=tmp_path) as job:
        while not list(tmp_path.glob("_a.parquet.parts/part-*.jsonl")):
            assert job.poll() is None, job.stderr and job.stderr.read()
            time.sleep(0.02)
        job.kill()
        job.communicate()
    assert job.returncode == -signal.SIGKILL
    kept = len(list(tmp_path.glob("_a.parquet.parts/part-*.jsonl")))
    assert 1 <= kept < 8
    shutil.copytree(tmp_path / "_a.parquet.parts", tmp_path / "_b.parquet.parts")

    (tmp_path / "pids").unlink()
    killer = kill_one(tmp_path)
    result = run(*args, *on_ray, "2", "--report", "page.html")
    assert result.exit_code == 0, result.output
    killer.join(5)
    assert not killer.is_alive()
    assert len(set(pids(tmp_path))) >= 3  # two, and the one in the place of the dead
    assert f"{kept * 30} finished rows are in" in result.stderr
    assert "failed: record 240: line 241: broken JSON" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("241 rows, 2 failed, ")
    assert f"{kept * 30} of the rows from an earlier run" in result.stderr
    assert '"id":"r239"' in (tmp_path / "page.html").read_text("utf-8").replace(" ", "")
    assert not (tmp_path / "_a.parquet.parts").exists()

    (tmp_path / "pids").unlink()
    result = run(*args, "-o", "b.parquet")
    assert result.exit_code == 0, result.output
    assert f"{kept * 30} finished rows are in" in result.stderr
    assert len(pids(tmp_path)) == 239 - 30 * kept + (kept > 4)  # one has no text
    assert run(*args, "-o", "whole.parquet").exit_code == 0
    whole = (tmp_path / "whole.parquet").read_bytes()
    assert (tmp_path / "a.parquet").read_bytes() == whole
    assert (tmp_path / "b.parquet").read_bytes() == whole


@pytest.mark.release
def test_a_cascade_has_the_rows_of_one_process(
    run: Run, saved_model: Path, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    larger = shutil.copytree(saved_model, tmp_path / "larger")
    records = products(12)
    jsonl(tmp_path / "in.jsonl", records)
    args = ("extract", "slow.py:Slow", "in.jsonl", "--max-errors", "1", "--details")
    cascade = ("--escalate-to", "larger", "--escalate-below", "0.5")
    monkeypatch.setenv("RAY_ADDRESS", cluster.address_info["address"])
    on_ray = run(*args, *cascade, "-o", "a.jsonl", "--ray", "--actors", "1")
    assert on_ray.exit_code == 0, on_ray.output
    here = run(*args, *cascade, "-o", "b.jsonl")
    assert here.exit_code == 0, here.output
    found, expected = (
        [
            (row["attributes"], {name: field.get("model") for name, field in row["fields"].items()})
            for row in rows((tmp_path / name).read_text("utf-8"))
            if row["attributes"]
        ]
        for name in ("a.jsonl", "b.jsonl")
    )
    assert found == expected
    assert len(found) == 11
    assert "larger" in {model for _, models in found for model in models.values()}

    def load() -> schemax.Extractor:
        parts = [schemax.Extractor.from_pretrained(place) for place in (saved_model, larger)]
        return schemax.Extractor.cascade(parts, confidence=0.5)

    dataset = ray.data.from_items(records)
    computed = schemax.io.ray.extract(dataset, declared(), model=load, text="t", num_cpus=1)
    brands = {row["id"]: row["brand"] for row in computed.take_all()}
    known = {row["id"]: row["attributes"] for row in rows((tmp_path / "b.jsonl").read_text())}
    assert brands == {id: values and values["brand"] for id, values in known.items()}


@pytest.mark.release
def test_errors_are_plain(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = jsonl(tmp_path / "in.jsonl", products(20))
    args = ("extract", "slow.py:Slow", source, "-o", "out.jsonl")
    refused(run(*args, "--actors", "2"), "--actors requires --ray")
    refused(run(*args, "--ray", "--actors", "2,1"), "--actors must be a number, or MIN,MAX")
    refused(run(*args, "--ray", "--dry-run"), "leave --ray out")
    refused(run(*args[:3], "--ray"), "name one with -o OUT")
    refused(run(*args, "--ray", "--gpus-per-actor", "1", "--actors", "1"), "no room for")
    (tmp_path / "empty").mkdir()
    refused(run(*args, "--ray", "--actors", "1", "--model", "empty"), "config.json")
    assert not (tmp_path / "_out.jsonl.parts").exists()


def test_an_actor_that_loads_another_model_is_refused(saved_model: Path) -> None:
    task = ExtractOptions(model=str(saved_model), device="cpu").task(declared(), {})
    known = task.facts()
    assert (known["decoding documents"], known["decoding slots"]) == ("isolated", "independent")
    assert callable(task.computing(known))
    with pytest.raises(
        schemax.ModelError, match="a different model from the others: model changed"
    ):
        task.computing({**known, "model": "of yesterday"})


def test_ray_is_needed_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray.data", None)
    with pytest.raises(InputError, match=r"needs ray, .* '\.\[ray\]'"):
        schemax.io.ray.extract([], declared())
