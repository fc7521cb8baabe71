"""The wheel holds all that is needed, and works where the source tree is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import schemax

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.stat().st_size < 45_000_000
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run_from(site: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=site.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.release
def test_wheel_works_outside_the_source_tree(unpacked: Path) -> None:
    where = run_from(unpacked, "-c", "import schemax; print(schemax.__file__)")
    assert Path(where.strip()).is_relative_to(unpacked)
    assert "television" in run_from(unpacked, "-m", "schemax", "schemas")
    contract = json.loads(run_from(unpacked, "-m", "schemax", "explain", "shoes", "--json"))
    assert contract
    assert (unpacked / "schemax" / "py.typed").is_file()
    code = "from schemax.attributes.ready_made import demonstrations_of as of; print(of('laptop'))"
    assert "screen_size" in run_from(unpacked, "-c", code)
    page = run_from(unpacked, "-c", "import schemax; print(schemax.report([]))")
    assert page.startswith("<!doctype html>")


@pytest.mark.slow
def test_wheel_extracts_with_the_embedded_model(unpacked: Path) -> None:
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from schemax import extract, load_schema\n"
        'titles = ["Crocs Women\'s Jayna Ballet Flat, Navy, 4 M US"]\n'
        "print(extract(titles, load_schema('shoes'))[0])"
    )
    assert "Crocs" in run_from(unpacked, "-c", code)


def test_one_version_everywhere() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    cited = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == [declared]
    newest = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert newest == "Unreleased" or newest.startswith(declared)


def test_public_names() -> None:
    """Whoever changes this list changes the contract."""
    assert sorted(schemax.__all__) == [
        "AttrSchema",
        "Calibration",
        "CompiledSchema",
        "DecodingConfig",
        "Diagnosis",
        "Extraction",
        "ExtractionError",
        "Extractor",
        "FieldError",
        "FieldResult",
        "InputError",
        "Location",
        "ModelError",
        "OutputFormat",
        "SchemaError",
        "SchemaxError",
        "ServerError",
        "Span",
        "Summary",
        "TemplateError",
        "arrow_schema",
        "attr",
        "calibrated",
        "compile_schema",
        "discover",
        "doctor",
        "extract",
        "extract_files",
        "extract_frame",
        "load_document",
        "load_documents",
        "load_schema",
        "load_schemas",
        "register_format",
        "register_layout",
        "report",
        "schema_names",
    ]
    assert all(hasattr(schemax, name) for name in schemax.__all__)
