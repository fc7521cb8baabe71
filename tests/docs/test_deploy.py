"""docs/deploy: each option, path, port, probe and metric that the files name exists in schemax."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import jsonl
from conftest import tiny_model
from ruamel.yaml import YAML
from serving import ALLOCATOR, served
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from schemax import Extractor
from schemax.base.resources import resource_dir
from schemax.commands import cli
from schemax.serve.monitoring import Metrics

httpx = pytest.importorskip("httpx")

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "docs" / "deploy"
PAGE = (ROOT / "docs" / "deploy.md").read_text("utf-8")
COMMANDS: Any = typer.main.get_command(cli.app)


def documents(name: str) -> list[Any]:
    return list(YAML(typ="safe", pure=True).load_all(FILES / name))


def settings_of(arguments: list[str]) -> dict[str, Any]:
    """What a command line sets. Raises click's errors for what the command does not know."""
    name, *rest = arguments
    found: dict[str, Any] = COMMANDS.commands[name].make_context(name, rest).params
    return found


def only(found: list[Any]) -> Any:
    (one,) = found
    return one


def container(kind: str, name: str) -> dict[str, Any]:
    made = only([one for one in documents(name) if one["kind"] == kind])
    found: dict[str, Any] = only(made["spec"]["template"]["spec"]["containers"])
    return found


def dockerfile() -> dict[str, list[str]]:
    """Arguments of every instruction."""
    text = re.sub(r"^#.*\n", "", (FILES / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    made: dict[str, list[str]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            made.setdefault(name, []).append(rest)
    return made


DOCKERFILE = dockerfile()
COMPOSE = only(documents("docker-compose.yml"))
SERVE = container("Deployment", "kubernetes-serve.yaml")
EXTRACT = container("Job", "kubernetes-extract.yaml")
UNIT = (FILES / "schemax.service").read_text("utf-8")


@pytest.fixture(scope="module")
def url(codec: Any, backend: Any) -> Iterator[str]:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    with served(Extractor(tiny_model("qwen3", codec.vocab_size), fast), api_key="key") as address:
        yield address


def unit() -> configparser.ConfigParser:
    made = configparser.ConfigParser(strict=False, interpolation=None)
    made.optionxform = str  # type: ignore[assignment,method-assign]
    made.read_string(UNIT)
    return made


def commands_that_serve() -> dict[str, list[str]]:
    return {
        "Dockerfile": json.loads(only(DOCKERFILE["CMD"])),
        "docker-compose.yml": COMPOSE["services"]["schemax"]["command"],
        "kubernetes-serve.yaml": SERVE["args"],
        "schemax.service": shlex.split(unit()["Service"]["ExecStart"])[1:],
    }


@pytest.mark.parametrize("name", ["Dockerfile", "docker-compose.yml", "kubernetes-serve.yaml"])
def test_containers_listen_beyond_themselves_with_a_key(name: str) -> None:
    found = settings_of(commands_that_serve()[name])
    assert (found["host"], found["port"], found["without_key"]) == ("0.0.0.0", 8000, False)
    assert found["api_key"] is None  # the environment has the key, not what `ps` shows
    assert found["log_format"] == "json"


def test_the_unit_of_systemd_serves_this_machine() -> None:
    service = unit()["Service"]
    found = settings_of(commands_that_serve()["schemax.service"])
    assert found["host"] == "127.0.0.1"
    assert int(service["TimeoutStopSec"]) > found["grace"]
    assert service["DynamicUser"] == "yes"


def test_whoever_stops_a_server_waits_until_requests_have_ended() -> None:
    grace = settings_of(SERVE["args"])["grace"]
    assert int(COMPOSE["services"]["schemax"]["stop_grace_period"].rstrip("s")) > grace
    (deployment,) = [one for one in documents("kubernetes-serve.yaml") if one["kind"] != "Service"]
    most = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert most > grace + SERVE["lifecycle"]["preStop"]["sleep"]["seconds"]


def environments() -> dict[str, dict[str, str]]:
    """What each file that starts a server sets."""
    pairs = " ".join(DOCKERFILE["ENV"]).split()
    # An instruction `Environment` may stand several times, of which configparser keeps the last.
    lines = re.findall(r"^Environment=(.*)$", UNIT, re.MULTILINE)
    return {
        "Dockerfile": dict(pair.split("=", 1) for pair in pairs),
        "docker-compose.yml": COMPOSE["services"]["schemax"]["environment"],
        "kubernetes-serve.yaml": {one["name"]: one.get("value", "") for one in SERVE["env"]},
        "schemax.service": dict(pair.split("=", 1) for pair in " ".join(lines).split()),
    }


@pytest.mark.parametrize("name", sorted(environments()))
def test_freed_memory_goes_back_as_in_the_load_test(name: str) -> None:
    set_by_page = dict(re.findall(r"\b(MALLOC_\w+)=(\d+)", PAGE))
    assert set_by_page == ALLOCATOR
    assert ALLOCATOR.items() <= environments()[name].items()


def test_the_image_runs_without_root_and_holds_no_key() -> None:
    assert int(only(DOCKERFILE["USER"])) > 0
    assert only(DOCKERFILE["EXPOSE"]) == "8000"
    assert json.loads(only(DOCKERFILE["ENTRYPOINT"])) == ["schemax"]
    assert environments()["Dockerfile"]["SCHEMAX_MODEL"] == "/model"
    assert json.loads(only(DOCKERFILE["VOLUME"])) == ["/model"]
    assert "API_KEY" not in (FILES / "Dockerfile").read_text("utf-8")
    assert COMPOSE["services"]["schemax"]["volumes"][0].endswith(":/model:ro")


def test_the_image_installs_extras_from_files_that_its_context_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    default = only([one for one in DOCKERFILE["ARG"] if one.startswith("EXTRAS=")])
    extras = default.removeprefix("EXTRAS=").split(",")
    assert set(extras) <= project["project"]["optional-dependencies"].keys()
    lines = (FILES / "Dockerfile.dockerignore").read_text("utf-8").split()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]}
    assert sent == needed | {*wheel["packages"], *wheel["force-include"]}
    assert all((ROOT / name).exists() for name in sent)


def test_the_health_check_tells_whether_the_server_answers(url: str) -> None:
    check = only(DOCKERFILE["HEALTHCHECK"])
    program, *arguments = json.loads(check.partition("CMD ")[2])
    assert program == "python"
    here = [one.replace("http://127.0.0.1:8000", url) for one in arguments]
    assert here != arguments
    assert subprocess.run([sys.executable, *here], check=False).returncode == 0
    nowhere = [one.replace("/health", "/nowhere") for one in here]
    failed = subprocess.run([sys.executable, *nowhere], capture_output=True, check=False)
    assert failed.returncode != 0


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probes_ask_what_answers_without_a_key(probe: str, url: str) -> None:
    asked = SERVE[probe]["httpGet"]
    ports = {port["name"]: port["containerPort"] for port in SERVE["ports"]}
    assert ports[asked["port"]] == settings_of(SERVE["args"])["port"]
    # As a probe asks, by the address of the pod.
    answer = httpx.get(f"{url}{asked['path']}", headers={"Host": "10.1.2.3:8000"})
    assert answer.status_code == 200


def test_prometheus_asks_where_the_figures_are(url: str) -> None:
    scrape = only(only(documents("prometheus.yml"))["scrape_configs"])
    target = only(only(scrape["static_configs"])["targets"])
    service, _, port = target.partition(":")
    assert settings_of(COMPOSE["services"][service]["command"])["port"] == int(port)
    secret = Path(scrape["authorization"]["credentials_file"])
    assert secret.parent == Path("/run/secrets")
    assert secret.name in COMPOSE["services"]["prometheus"]["secrets"]
    variable = COMPOSE["secrets"][secret.name]["environment"]
    assert variable in COMPOSE["services"][service]["environment"]
    headers = {"Authorization": "Bearer key"}
    figures = httpx.get(f"{url}{scrape['metrics_path']}", headers=headers)
    assert "schemax_documents_in_flight 0.0" in figures.text


def test_what_compose_mounts_exists() -> None:
    for service in COMPOSE["services"].values():
        for volume in service["volumes"]:
            if volume.startswith("./"):
                assert (FILES / volume.partition(":")[0]).is_file()
        for config in service.get("configs", ()):
            assert YAML(typ="safe", pure=True).load(COMPOSE["configs"][config["source"]]["content"])
    build = COMPOSE["services"]["schemax"]["build"]
    context = (FILES / build["context"]).resolve()
    assert (context, context / build["dockerfile"]) == (ROOT, FILES / "Dockerfile")


def series() -> dict[str, set[str]]:
    """Of every name that Prometheus stores, its labels."""
    registry = Metrics(lambda: 0).registry
    known = registry._names_to_collectors
    labels = {one.name: () for one in registry.collect()}  # the process's are made when asked for
    labels |= {name: metric._labelnames for name, metric in known.items()}
    return {name: {*found, "le", "instance"} for name, found in labels.items()}


def test_the_dashboard_shows_figures_that_there_are() -> None:
    board = json.loads((FILES / "grafana-dashboard.json").read_text("utf-8"))
    known, shown = series(), set()
    for target in [target for panel in board["panels"] for target in panel["targets"]]:
        said = target["expr"]
        names = set(re.findall(r"(?:schemax|process)_\w+", said))
        used = {
            *re.findall(r"\{(\w+)=", said),
            *re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]),
        }
        used |= {one for part in re.findall(r"by \(([^)]*)\)", said) for one in part.split(", ")}
        assert names
        assert all(used <= known[name] for name in names), said
        shown |= names
    families = {one.name for one in Metrics(lambda: 0).registry.collect()}
    own = {name for name in families if name.startswith("schemax_")}
    found = {name.removesuffix("_total").removesuffix("_bucket") for name in shown}
    assert found == own | {"process_resident_memory_bytes"}


def filled(arguments: list[str], shard: int) -> list[str]:
    return [one.replace("$(SHARD)", str(shard)) for one in arguments]


def test_the_job_reads_every_shard_once() -> None:
    job = only(documents("kubernetes-extract.yaml"))["spec"]
    assert job["completionMode"] == "Indexed"
    assert [one["name"] for one in EXTRACT["env"]] == ["SHARD"]
    every = [settings_of(filled(EXTRACT["args"], shard)) for shard in range(job["completions"])]
    assert {one["shard"] for one in every} == {
        f"{shard}/{job['completions']}" for shard in range(job["completions"])
    }
    assert len({one["output"] for one in every}) == job["completions"]
    mounts = tuple(mount["mountPath"] for mount in EXTRACT["volumeMounts"])
    for place in (every[0]["schema"], *every[0]["input"], every[0]["model"], every[0]["output"]):
        assert place.startswith(mounts)
    writable = [m["mountPath"] for m in EXTRACT["volumeMounts"] if not m.get("readOnly")]
    assert every[0]["output"].startswith(tuple(writable))


def test_the_page_names_every_file_and_commands_that_exist() -> None:
    for path in FILES.iterdir():
        assert f"(deploy/{path.name})" in PAGE or path.name == "Dockerfile.dockerignore"
    said = re.findall(r"^ *schemax (.*?)(?:\s+#.*)?$", PAGE, re.MULTILINE)
    assert said
    for line in said:
        settings_of(shlex.split(line))


@pytest.mark.slow
def test_shards_of_the_job_make_one_table(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "shards").mkdir()
    rows = [{"id": n, "title": f"Nike Pegasus {n}, black"} for n in range(5)]
    jsonl(tmp_path / "catalogue.jsonl", rows)
    here = {
        "/schema/mine.py:Television": "shoes",
        "/data/catalogue.parquet": str(tmp_path / "catalogue.jsonl"),
        "--model=/models/qwen3-4b": f"--model={resource_dir('embedded')}",
    }
    for shard in range(2):
        arguments = [here.get(one, one) for one in filled(EXTRACT["args"], shard)]
        arguments = [one.replace("/16", "/2").replace("/data", str(tmp_path)) for one in arguments]
        for _ in range(2):  # a pod that is started again does nothing
            done = CliRunner().invoke(cli.app, arguments)
            assert done.exit_code == 0, done.output
    (merged,) = re.findall(r"^ *schemax merge (.*)$", PAGE, re.MULTILINE)
    arguments = shlex.split(merged.replace("/data", str(tmp_path)))
    assert CliRunner().invoke(cli.app, ["merge", *arguments]).exit_code == 0
    table = pq.read_table(tmp_path / "televisions.parquet")
    assert table["index"].to_pylist() == list(range(5))
