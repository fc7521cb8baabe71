"""The playground of a server, in a real browser, over a real socket."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from chromium import Browser, find_chromium

from schemax import Extractor
from schemax.base.resources import resource_dir
from schemax.runtime.models.model import DecoderModel

uvicorn = pytest.importorskip("uvicorn")
app = pytest.importorskip("schemax.serve.app")

TITLE = (
    "Northfell Women's Tamarack Hiking Boot, Dark Olive <script>alert(1)</script>, 8.5 M &lt;b> US"
)
SHOWN = "Northfell Women's Tamarack Hiking Boot, Dark Olive , 8.5 M <b> US"


@pytest.fixture(scope="module", params=[None, "secret"], ids=["open", "with a key"])
def address(request: pytest.FixtureRequest) -> Iterator[tuple[str, str | None]]:
    extractor = Extractor.from_pretrained(resource_dir("embedded"), device="cpu")
    made = app.create_app(extractor, name="embedded", api_key=request.param)
    server = uvicorn.Server(uvicorn.Config(made, log_level="error"))
    with socket.socket() as ours:
        ours.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [ours]})
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        yield f"http://127.0.0.1:{ours.getsockname()[1]}", request.param
        server.should_exit = True
        thread.join()


@pytest.mark.slow
def test_a_trace_over_http(address: tuple[str, str | None]) -> None:
    url, key = address
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
        found = client.post("/v1/trace", json={"schema": "shoes", "document": TITLE}).json()
        assert found["text"] == SHOWN
        assert found["seconds"] > 0
        row = client.post("/v1/extract", json={"schema": "shoes", "documents": [TITLE]}).json()
        assert found["row"]["attributes"] == row["rows"][0]["attributes"]
        asked = {"schema": "shoes", "document": TITLE}
        with client.stream(
            "POST", "/v1/trace", json=asked, headers={"accept": "text/event-stream"}
        ) as answer:
            lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
        first, *passes, last = [json.loads(line.removeprefix("data: ")) for line in lines]
        assert (first["type"], first["text"], last["type"]) == ("begin", found["text"], "end")
        assert [one["written"] for one in passes] == found["passes"] == last["passes"]
        assert [one["number"] for one in passes] == list(range(len(passes)))
        ended = {name: field for one in passes for name, field in one["fields"].items()}
        assert ended == last["row"]["fields"]
        assert len([one for one in passes if one["fields"]]) > 1
        for body, status in (
            ({"schema": "shoes", "document": ""}, (400, 422)),
            ({"schema": "shoes", "document": "x" * 30_000}, (400, 422)),
            ({"schema": "no such", "document": "x"}, (400, 404, 422)),
            ({"schema": {"type": "object"}, "document": "x"}, (400,)),
        ):
            answer = client.post("/v1/trace", json=body)
            assert answer.status_code in status
            assert answer.json()["error"]["message"]
    if key:
        assert httpx.post(f"{url}/v1/trace", json={}).status_code == 401


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium")
def test_a_document_is_read_in_the_browser(
    address: tuple[str, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, key = address
    slow, usual = threading.Event(), DecoderModel.run_batch

    def run_batch(model: DecoderModel, *pass_: Any) -> Any:
        if slow.is_set():  # so that a pass takes longer than the page to show it
            time.sleep(0.5)
        return usual(model, *pass_)

    monkeypatch.setattr(DecoderModel, "run_batch", run_batch)
    try:
        browser = Browser(str(find_chromium()), tmp_path)
    except (OSError, AssertionError):
        pytest.skip("Chromium does not start")
    try:
        browser.call("Page.navigate", url=url)
        browser.wait("document.querySelectorAll('#declared tr').length === 5", 60)
        if key:
            browser.wait("!document.getElementById('locked').hidden", 60)
            browser.run(
                "const key = document.getElementById('key'); key.value = 'secret'; key.onchange()"
            )
        browser.wait("document.querySelectorAll('#named option').length > 5", 60)
        browser.run(f"document.getElementById('text').value = {TITLE!r}")
        slow.set()
        browser.run("document.getElementById('run').click()")
        running = "document.getElementById('state').textContent === 'reading ...' && "
        browser.wait(f"{running} document.querySelectorAll('#body .token').length > 0", 60)
        browser.wait(f"{running} document.querySelectorAll('#document mark').length > 0", 60)
        slow.clear()
        browser.wait("document.getElementById('state').textContent.startsWith('done in')", 60)
        assert browser.run("document.getElementById('document').textContent") == SHOWN
        at = "document.getElementById('at')"
        browser.wait(f"{at}.value === {at}.max", 60)
        assert browser.run("document.querySelectorAll('#body tr').length") == 5
        assert not browser.run("document.getElementById('result').hidden")
        narrow = {"width": 420, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.run("document.querySelector('input[value=fields]').click()")
        browser.call("Emulation.setDeviceMetricsOverride", **narrow)
        browser.wait("innerWidth === 420", 60)
        editor = "document.getElementById('fields')"
        assert browser.run(f"{editor}.clientWidth") > 0
        assert browser.run(f"{editor}.scrollWidth <= {editor}.clientWidth")
        page = "document.documentElement"
        assert browser.run(f"{page}.scrollWidth") <= 420  # with the result open
        browser.call("Emulation.clearDeviceMetricsOverride")
        browser.run("document.querySelector('input[value=json]').click()")
        browser.wait("document.getElementById('json').value.includes('properties')", 60)
        browser.run("document.getElementById('json').value = '{'")
        browser.run("document.getElementById('run').click()")
        browser.wait("document.getElementById('state').classList.contains('wrong')", 60)
        assert browser.run("document.getElementById('result').hidden")
        if not key:  # a refusal is logged by the browser
            assert browser.trouble == []
        assert all(request.startswith(url) for request in browser.requests)
    finally:
        browser.close()
