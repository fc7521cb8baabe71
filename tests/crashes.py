"""Kills a run before each of its operations on files in turn, and lets it go on to the end.

Run as a script, with the arguments of the command line. The run is a fork each time, so that
nothing has to be imported again. Prints a line of JSON for each kill.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from stand_in import use

from schemax.commands.cli import main

# What changes or opens a file, as Python's audit hooks tell of it.
CHANGES = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate")


def run(kill_before: int | None) -> int:
    """The status of a run in a fork; negative if it was killed."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    done = 0
    note = os.open("operation", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal done
        # Names without a folder are those of the folder that is being removed.
        if event in CHANGES and isinstance(args[0], (str, Path)):
            name = os.fspath(args[0])
            done += "out.jsonl" in name or event in ("os.remove", "os.rmdir")
            if done == kill_before:
                os.write(note, f"{event} {name}".encode())
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    main()
    os._exit(0)


def clear() -> None:
    shutil.rmtree("_out.jsonl.parts", ignore_errors=True)
    for name in ("out.jsonl", "_out.jsonl.run.json", "_out.jsonl.keys", "computed"):
        Path(name).unlink(missing_ok=True)


def tell() -> None:
    use()
    with suppress(SystemExit):
        main()  # imports what a run needs
    for number in count(1):
        clear()
        if (status := run(number)) != -signal.SIGKILL:
            assert status == 0, status
            return
        out = Path("out.jsonl")
        found = {
            "operation": Path("operation").read_text(),
            "there": out.read_bytes().decode() if out.exists() else None,
            "status": run(None),
            "rows": out.read_bytes().decode(),
            "left": sorted(path.name for path in Path().glob("*out*")),
            "computed": len(Path("computed").read_text().splitlines()),
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    tell()
