"""A headless Chromium, driven through its debugging pipe: JSON messages that end in a null byte."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# Chromium reads its commands from descriptor 3 and answers on 4.
_EXEC = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for place, end in enumerate(ends, 3):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page at a time. `trouble` collects what the page logs as wrong, `requests` what it asks
    the network for."""

    def __init__(self, program: str, folder: Path) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        command = [
            *(sys.executable, "-c", _EXEC, str(theirs_in), str(theirs_out)),
            program,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={folder}"),
        ]
        self._process = subprocess.Popen(
            command,
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._reader = os.fdopen(ours_in, "rb", buffering=0)
        self._writer = os.fdopen(ours_out, "wb", buffering=0)
        self._pending = b""
        self._number = 0
        self._session: str | None = None
        self.trouble: list[str] = []
        self.requests: list[str] = []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
        except (OSError, AssertionError):
            self._end()
            raise
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply["error"]
                result: dict[str, Any] = reply["result"]
                return result
            self._note(reply)

    def open(self, path: Path, *, width: int = 1200, height: int = 700) -> None:
        """Loads a page, and waits until it has started."""
        self.trouble.clear()
        self.requests.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def run(self, script: str) -> Any:
        """What an expression of JavaScript gives, promises awaited."""
        reply = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait(self, condition: str, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def press(self, *keys: str, ctrl: bool = False) -> None:
        """Real keys: characters, or names such as Enter and ArrowDown."""
        for key in keys:
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 and not ctrl else "")
            code = {"Escape": 27}.get(key, 0)  # of the keys that the browser itself acts on
            common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 2 if ctrl else 0}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
            self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, selector: str) -> None:
        """A real click, in the middle of an element."""
        place = self.run(
            f"(() => {{const box = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def picture(self, path: Path, **settings: Any) -> None:
        shot = self.call("Page.captureScreenshot", **settings)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._session = None
        self.call("Browser.close")
        self._end()

    def _end(self) -> None:
        self._reader.close()
        self._writer.close()
        self._process.wait(20)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            part = self._reader.read(1 << 20)
            assert part, "the browser has gone"
            self._pending += part
        message, _, self._pending = self._pending.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.trouble.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.trouble.append(str(params["args"]))
        elif method == "Log.entryAdded":
            self.trouble.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
