"""The process uses the processors it may use, and leaves loaded objects out of collections."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from schemax.base import process
from schemax.evaluation.diagnosis import checks
from schemax.evaluation.diagnosis.checks import processor_checks, thread_check
from schemax.runtime.models.loading import precision


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which nobody has chosen anything; what is set is undone."""
    for name in (*process.WAITING, "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "x")  # so that it is put back
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("written", "expected"), [("max 100000", None), ("150000 100000", 2), ("10000 100000", 1)]
)
def test_a_container_s_share_bounds_the_threads(
    clean: None, written: str, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(f"{written}\n")
    monkeypatch.setattr(process, "QUOTA", quota)
    machine = len(os.sched_getaffinity(0))
    assert process.usable_processors() == min(expected or machine, machine)
    process.share_processors()
    assert os.environ["GOMP_SPINCOUNT"] == "1000"
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    threads = os.environ.get("OMP_NUM_THREADS")
    assert threads == (None if expected is None else str(min(expected, machine)))


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_what_the_environment_sets_stays(
    clean: None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text("50000 100000")
    monkeypatch.setattr(process, "QUOTA", quota)
    monkeypatch.setenv(name, "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    before = dict(os.environ)
    process.share_processors()
    assert dict(os.environ) == before


@pytest.mark.release
@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("import schemax.runtime.models.model", "1000"),
        ("import torch, schemax.runtime.models.model", "None"),
    ],
)
def test_a_library_sets_it_only_before_torch_is_imported(first: str, expected: str) -> None:
    """torch reads the environment when it is imported, and never again."""
    assert _printed(f"{first}\nprint(os.environ.get('GOMP_SPINCOUNT'))") == [expected]


def test_the_command_sets_it_before_torch_is_imported() -> None:
    code = (
        "import schemax.commands.cli as cli\n"
        "cli.app = lambda: print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)\n"
        "cli.main()\n"
    )
    assert _printed(code) == ["1000", "False"]


def test_torch_is_told_of_threads_only_where_it_has_another_number() -> None:
    """Once told, MKL begins threads in products inside an operation that has its own."""
    code = (
        "from unittest import mock\nfrom schemax.base.process import use_threads\n"
        "use_threads(2)\nimport torch\nprint(torch.get_num_threads())\n"
        "with mock.patch('torch.set_num_threads') as told:\n"
        "    use_threads(2)\n    print(told.call_count)\n"
        "    use_threads(1)\n    print(told.call_args.args[0])\n"
    )
    assert _printed(code) == ["2", "0", "1"]


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux does")
def test_threads_end_where_they_are_given_back() -> None:
    code = (
        "import torch\nfrom schemax.base.process import give_back_threads\n"
        "count = lambda: len(os.listdir('/proc/self/task'))\n"
        "torch.set_num_threads(4)\nbefore = count()\n"
        "torch.ones(1 << 20).add_(1)\nprint(count() - before)\n"
        "give_back_threads()\nprint(count() - before)\n"
        "print(int(torch.ones(1 << 20).sum()), count() - before)\n"
    )
    assert _printed(code) == ["3", "0", str(1 << 20), "3"]


def _printed(code: str) -> list[str]:
    chosen = process.WAITING
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    environment["PYTHONPATH"] = str(Path(process.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import os, sys\n{code}"],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout.decode().split()


def test_the_doctor_says_when_others_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr("schemax.evaluation.diagnosis.checks.usable_processors", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.2, 0.0, 0.0))
    assert thread_check().found == "4 on 4 processors, load 0.2"
    monkeypatch.setattr(os, "getloadavg", lambda: (3.0, 0.0, 0.0))
    assert "OMP_NUM_THREADS=1 may be faster" in thread_check().found
    monkeypatch.setattr("schemax.evaluation.diagnosis.checks.usable_processors", lambda: 2)
    assert "set OMP_NUM_THREADS=2" in thread_check().found


@pytest.mark.parametrize(
    ("speedup", "trained", "expected"),
    [
        (
            2.5,
            "bfloat16",
            "bfloat16: the model's schemax.json names it, and its products take 0.4 of",
        ),
        (
            0.5,
            "bfloat16",
            "float32: products in bfloat16, which the model's schemax.json names, gain",
        ),
        (2.5, None, "float32: exact; "),
    ],
)
def test_the_doctor_says_which_dtype_is_taken_and_why(
    monkeypatch: pytest.MonkeyPatch, speedup: float, trained: str | None, expected: str
) -> None:
    monkeypatch.setattr(precision, "bfloat16_speedup", lambda: speedup)
    monkeypatch.setattr(checks, "bfloat16_speedup", lambda: speedup)
    known = {"architecture": "x86_64", "avx2": True, "avx512_f": True, "avx512_vnni": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    processor, dtype = processor_checks(trained)
    assert processor.found == (
        "AVX2, AVX-512, VNNI; no AVX512-BF16, no AMX; "
        f"products in bfloat16 take {1 / speedup:.2g} times as long as in float32"
    )
    assert dtype.found.startswith(expected)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert next(processor_checks(trained)).found.endswith("; held to ONEDNN_MAX_CPU_ISA=AVX2")
    known["architecture"] = "aarch64"
    assert next(processor_checks(trained)).found.startswith("products in bfloat16")


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs Linux")
def test_instructions_are_those_of_the_processor() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    found = precision.instructions()
    if not found:
        pytest.skip("torch does not tell")
    assert found["AVX2"] is ("avx2" in flags)
    assert found["AVX-512"] is ("avx512f" in flags)
    assert found["VNNI"] is bool({"avx512_vnni", "avx_vnni"} & flags)
    assert found["AVX512-BF16"] is ("avx512_bf16" in flags)
    assert found["AMX"] is ("amx_tile" in flags)


def test_what_is_there_is_left_out_for_as_long_as_the_context_lasts() -> None:
    kept = [{"there": True}]
    with process.frozen_heap():
        later = [{"later": True}]
        assert gc.get_freeze_count() > 1000
        collected = gc.get_objects()
        assert not any(item is kept for item in collected)
        assert any(item is later for item in collected)
    assert gc.get_freeze_count() == 0
    assert any(item is kept for item in gc.get_objects())


def test_collections_are_rarer_meanwhile_and_stay_off_where_they_are_off() -> None:
    usual = gc.get_threshold()
    with process.frozen_heap():
        assert gc.get_threshold()[0] > usual[0]
        assert gc.get_threshold()[1:] == usual[1:]
    assert gc.get_threshold() == usual
    try:
        gc.set_threshold(0)
        with process.frozen_heap():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*usual)
