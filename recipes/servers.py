"""Servers of models as processes: starts them, reads their processor time, and ends them."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

NATIVE = "llama-server"
"""The name of llama.cpp's own program; any other command starts llama-cpp-python's server."""

_SECONDS_TO_START = 240


def vllm_settings(threads: int) -> dict[str, str]:
    """The environment of vLLM on a CPU: 4 GiB of keys and values, and a processor for a thread."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, range(threads))),
        "VLLM_NO_USAGE_STATS": "1",
    }


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. url: of its API, including `/v1`. process: its id, and its session's."""

    url: str
    process: int

    def cpu_seconds(self) -> float:
        """Returns the processor time so far, user and system, of all processes of the server."""
        ticks = 0
        for file in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                fields = file.read_text("utf-8").rpartition(")")[2].split()
                if int(fields[3]) == self.process:
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / float(os.sysconf("SC_CLK_TCK"))


@contextmanager
def llama_server(
    program: str,
    model: Path,
    *,
    context: int = 4096,
    threads: int = 1,
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """Runs a server of llama.cpp at a free port of this machine.

    program: the command that starts it, `llama-server` or `python -m llama_cpp.server`; model: a
    GGUF file; options: further options of the command. Raises RuntimeError, with the end of the
    log, if the server ends before it answers.
    """
    count = str(threads)
    command = [*shlex.split(program), "--model", str(model)]
    if NATIVE in program:
        command += ["--ctx-size", str(context), "--threads", count, "--no-webui"]
    else:
        command += ["--n_ctx", str(context), "--n_threads", count, "--n_threads_batch", count]
    with _running([*command, *options], {}) as server:
        yield server


@contextmanager
def vllm_server(
    python: str,
    model: Path,
    *,
    context: int = 4096,
    threads: int = 2,
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """Runs vLLM at a free port of this machine, on the CPU in float32; it starts in a minute.

    python: of an environment with vLLM; model: a folder; options: further options. Raises
    RuntimeError, with the end of the log, if the server ends before it answers.
    """
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "model", "--max-model-len", str(context)]
    command += ["--dtype", "float32", "--enforce-eager"]
    with _running([*command, *options], vllm_settings(threads)) as server:
        yield server


@contextmanager
def _running(command: Sequence[str], settings: Mapping[str, str]) -> Iterator[Server]:
    """A command in a session of its own, once it answers; all its processes end with the context.

    settings: of its environment, unless this process has them.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*command, "--host", "127.0.0.1", "--port", str(port)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**settings, **os.environ}, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}/v1"
            for _ in range(_SECONDS_TO_START * 4):
                if process.poll() is not None:
                    log.seek(0)
                    raise RuntimeError(log.read()[-3000:].decode("utf-8", "replace"))
                if _answers(url):
                    break
                time.sleep(0.25)
            yield Server(url, process.pid)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/models", timeout=5):
            return True
    except OSError:
        return False
