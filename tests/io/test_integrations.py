"""docs/integrations: the scripts of each page, run as they stand there, with the real engines.

A model of the Hub becomes the embedded one. What an engine gives is what one process gives.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from schemax import InputError, extract_files, extract_frame
from schemax.base.resources import resource_dir

PAGES = Path(__file__).resolve().parents[2] / "docs" / "integrations"
FOLDER = str(resource_dir("embedded"))

pytestmark = pytest.mark.filterwarnings("ignore")  # of the engines, about themselves


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks(page: str, kind: str = "python") -> list[str]:
    text = (PAGES / page).read_text("utf-8").replace("Qwen/Qwen3-4B", FOLDER)
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(code: str, names: dict[str, Any]) -> None:
    names.setdefault("__name__", "__main__")
    exec(compile(code, "page.md", "exec", dont_inherit=True), names)


@pytest.mark.slow
def test_duckdb() -> None:
    pytest.importorskip("duckdb")
    names: dict[str, Any] = {}
    for code in blocks("duckdb.md"):
        run(code, names)
    con = names["con"]
    rows = con.sql("SELECT sku, brand, screen_size, _error FROM televisions").fetchall()
    assert rows == [("a1", "Sony", 55.0, None), ("a2", "LG", 55.0, None)]
    assert con.sql("FROM televisions_read ORDER BY sku").fetchall() == (
        con.sql("FROM televisions").fetchall()
    )
    read = "SELECT sku, unnest(television(title)) FROM products ORDER BY sku"
    assert con.sql(read).fetchall() == con.sql("FROM televisions").fetchall()
    nulls = con.sql("SELECT television(title) FROM (VALUES (NULL), ('LG 55 inch')) AS t(title)")
    assert [found and found["brand"] for (found,) in nulls.fetchall()] == [None, "LG"]
    con.close()


@pytest.mark.slow  # Java, and a model for each of two workers
def test_spark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}
    builder = sql.SparkSession.builder.master("local[2]").config(map=settings)
    session = builder.getOrCreate()
    try:
        names: dict[str, Any] = {}
        first, resumed = blocks("spark.md")
        run(first, names)
        rows = pyarrow.Table.from_pylist(
            [{"sku": sku, "title": title} for sku, title in names["rows"]]
        )
        given: dict[str, Any] = {"text": "title", "keep": ["sku"], "model": FOLDER}
        alone = extract_frame(rows, names["Television"], **given).to_pylist()
        assert {row["resolution"] for row in alone} > {"4K", "1080p"}
        assert in_order(session.read.parquet("televisions")) == in_order_of(alone)

        run(resumed, names)
        shutil.rmtree("shards/shard=1")
        parts = sorted(folder.glob("shards/shard=[02]/*"))
        run(resumed, names)
        assert sorted(folder.glob("shards/shard=[02]/*")) == parts  # none is computed again
        whole = session.read.parquet("shards").drop("shard")
        assert in_order(whole) == in_order_of(alone)

        with pytest.raises(InputError, match="has no column 'name'"):
            names["extract"](names["products"], names["Television"], text="name")
        with pytest.raises(InputError, match="not list"):
            names["extract"]([], names["Television"])
    finally:
        session.stop()


def in_order(frame: Any) -> list[dict[str, Any]]:
    return in_order_of([row.asDict(recursive=True) for row in frame.collect()])


def in_order_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["sku"]))


@pytest.mark.slow
def test_datasets() -> None:
    pytest.importorskip("datasets")
    names: dict[str, Any] = {}
    for code in blocks("datasets.md"):
        run(code, names)
    rows = names["found"].to_list()
    assert [row["brand"] for row in rows] == ["Sony", "LG", "TCL"]
    assert [row["sku"] for row in rows] == ["a1", "a2", "a3"]
    assert names["table"].to_pylist() == rows
    assert pyarrow.parquet.read_table("televisions.parquet").to_pylist() == rows
    assert names["mapped"].to_list() == rows
    assert names["rows"] == rows


def test_dagster(folder: Path) -> None:
    dagster = pytest.importorskip("dagster")
    (code,) = blocks("dagster.md")
    titles = ["Sony 55-Inch 4K TV", "LG OLED55C3, 55 inch", "TCL 43 inch 1080p", ""]
    lines = [json.dumps({"id": str(n), "title": titles[n % 4]}) for n in range(8)]
    (folder / "catalogue.jsonl").write_text("\n".join(lines) + "\n")
    names: dict[str, Any] = {}
    run(code, names)
    extract_files(
        names["Television"], "catalogue.jsonl", "alone.parquet", text="title", model=FOLDER
    )
    assets = [names["televisions"], names["catalogue"]]
    with dagster.DagsterInstance.ephemeral() as instance:
        for shard in names["shards"].get_partition_keys():
            done = dagster.materialize(assets[:1], partition_key=shard, instance=instance)
            assert done.success
            (event,) = done.asset_materializations_for_node("televisions")
            assert event.metadata["rows"].value == (2 if shard == "2" else 3)
        assert dagster.materialize(assets, selection=assets[1:], instance=instance).success
    together = pyarrow.parquet.read_table("televisions.parquet")
    assert together.equals(pyarrow.parquet.read_table("alone.parquet"))


@pytest.mark.slow  # four processes of dbt
def test_dbt(folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("dbt.adapters.duckdb")
    for name, code in files("dbt.md").items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(code)

    def build(status: int = 0) -> list[Any]:
        (command,) = blocks("dbt.md", "bash")
        program = "import sys; from dbt.cli.main import cli; sys.argv = sys.argv[1:]; cli()"
        done = subprocess.run(
            [sys.executable, "-c", program, *shlex.split(command)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert ("FAIL 1 rows_that_failed" in done.stdout) is (status == 1)
        with duckdb.connect("shop.duckdb") as con:
            found: list[Any] = con.sql(
                "SELECT sku, brand, screen_size, resolution, _error FROM televisions ORDER BY sku"
            ).fetchall()
        return found

    names: dict[str, Any] = {}
    run((folder / "models" / "televisions.py").read_text(), names)
    titles = ["Sony 55-Inch 4K TV", "LG OLED55C3, 55 inch", "TCL 43 inch"]
    rows = pyarrow.table({"sku": ["a1", "a2", "a3"], "title": titles})
    given: dict[str, Any] = {"text": "title", "keep": ["sku"], "model": FOLDER}
    alone = extract_frame(rows, names["Television"], **given).drop("_field_errors").to_pylist()
    expected = [tuple(row.values()) for row in alone]
    assert build() == expected[:2]
    with duckdb.connect("shop.duckdb") as con:  # what is there is not read again
        con.execute("UPDATE televisions SET brand = 'kept' WHERE sku = 'a1'")
    products = folder / "models" / "products.sql"
    sql = products.read_text()
    products.write_text(sql.replace("(VALUES ", "(VALUES ('a3', ''), "))
    assert build(status=1)[2] == ("a3", None, None, None, "the text is empty")
    products.write_text(sql.replace("(VALUES ", "(VALUES ('a3', 'TCL 43 inch'), "))
    assert build() == [("a1", "kept", *expected[0][2:]), *expected[1:]]


def files(page: str) -> dict[str, str]:
    """The blocks of a page that are files, by their names."""
    text = (PAGES / page).read_text("utf-8").replace("Qwen/Qwen3-4B", FOLDER)
    found = re.findall(r'^```\w+ title="(.*?)"\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
    return dict(found)
