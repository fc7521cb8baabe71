"""Two Ray nodes, of which one is killed in mid-run: nothing is lost, and nothing is doubled."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import jsonl, runner, set_part_rows
from test_ray import DECLARATION, pids, products

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = [
    pytest.mark.slow,
    *(
        pytest.mark.filterwarnings(f"ignore::{kind}")
        for kind in ("DeprecationWarning", "FutureWarning", "ResourceWarning")
    ),
]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """A cluster and its second node. Each has room for one actor of two CPUs; the head, besides,
    for who reads."""
    ray.shutdown()
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    size = {"object_store_memory": 100_000_000, "num_gpus": 0}
    head = {"num_cpus": 3, "include_dashboard": False, **size}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        second = cluster.add_node(num_cpus=2, **size)
        cluster.wait_for_nodes()
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        yield cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


def parent(pid: int) -> int:
    """Of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


@pytest.mark.release
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
def test_a_node_that_is_killed_costs_no_row(
    saved_model: Path, nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = nodes
    (raylet,) = (one.process.pid for one in second.all_processes["raylet"])
    (tmp_path / "slow.py").write_text(f"PIDS = {str(tmp_path / 'pids')!r}\n{DECLARATION}")
    run = runner(tmp_path, saved_model, monkeypatch)
    jsonl(tmp_path / "in.jsonl", products(240))
    set_part_rows(20, monkeypatch)
    there: set[int] = set()  # actors of the second node, when it died

    def kill() -> None:
        while not there:
            done = pids(tmp_path)
            there.update(pid for pid in set(done) if done.count(pid) >= 5 and parent(pid) == raylet)
            time.sleep(0.02)
        os.kill(raylet, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    args = ("extract", "slow.py:Slow", "in.jsonl", "--max-errors", "1")
    on_ray = ("--ray", "--actors", "2", "--cpus-per-actor", "2")
    result = run(*args, "-o", "a.parquet", *on_ray)
    assert result.exit_code == 0, result.output
    killer.join(5)
    assert not killer.is_alive()
    assert len(there) == 1
    assert all(pid in there or parent(pid) != raylet for pid in pids(tmp_path))
    assert len(set(pids(tmp_path))) >= 2  # the head's actor has done the rest
    assert result.stderr.splitlines()[-1].startswith("240 rows, 1 failed, ")

    (tmp_path / "pids").unlink()
    assert run(*args, "-o", "whole.parquet").exit_code == 0
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
