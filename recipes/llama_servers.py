"""llama.cpp's servers as processes: starts them, reads their processor time, and ends them."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NATIVE = "llama-server"
"""The name of llama.cpp's own program; any other command starts llama-cpp-python's server."""

_SECONDS_TO_START = 240


@dataclass(frozen=True, slots=True)
class LlamaServer:
    """A running server. url: of its API, including `/v1`. process: its id."""

    url: str
    process: int

    def cpu_seconds(self) -> float:
        """Returns the processor time so far, user and system, of all threads of the process."""
        text = Path(f"/proc/{self.process}/stat").read_text("utf-8")
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


@contextmanager
def llama_server(
    program: str, model: Path, *, context: int = 4096, options: Sequence[str] = ()
) -> Iterator[LlamaServer]:
    """Runs a server at a free port of this machine, with one thread.

    program: the command that starts it, `llama-server` or `python -m llama_cpp.server`; model: a
    GGUF file; options: further options of the command. Raises RuntimeError, with the end of the
    log, if the server ends before it answers.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*shlex.split(program), "--model", str(model), "--host", "127.0.0.1"]
    command += ["--port", str(port)]
    if NATIVE in program:
        command += ["--ctx-size", str(context), "--threads", "1", "--no-webui"]
    else:
        command += ["--n_ctx", str(context), "--n_threads", "1", "--n_threads_batch", "1"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}/v1"
            for _ in range(_SECONDS_TO_START * 4):
                if process.poll() is not None:
                    log.seek(0)
                    raise RuntimeError(log.read()[-3000:].decode("utf-8", "replace"))
                if _answers(url):
                    break
                time.sleep(0.25)
            yield LlamaServer(url, process.pid)
        finally:
            process.terminate()
            process.wait(20)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/models", timeout=5):
            return True
    except OSError:
        return False
