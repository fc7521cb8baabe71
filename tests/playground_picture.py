"""Takes the picture of the playground that the docs show: `python playground_picture.py OUT.webp`.

The listing was written for this purpose; what is read of it is the embedded model's own.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from chromium import Browser, find_chromium
from report_picture import LISTINGS
from serving import served

from schemax import Extractor
from schemax.base.resources import resource_dir


def main(out: Path) -> None:
    program = find_chromium()
    if program is None:
        sys.exit("no Chromium here")
    extractor = Extractor.from_pretrained(resource_dir("embedded"), device="cpu")
    with served(extractor, name="embedded") as address, tempfile.TemporaryDirectory() as folder:
        browser = Browser(program, Path(folder))
        size = {"width": 1000, "height": 840, "deviceScaleFactor": 1, "mobile": False}
        browser.call("Emulation.setDeviceMetricsOverride", **size)
        browser.call("Page.navigate", url=address)
        browser.wait("document.querySelectorAll('#named option').length > 5")
        browser.run(f"document.getElementById('text').value = {json.dumps(LISTINGS[1])}")
        browser.run("document.querySelector('input[value=named]').click()")
        browser.run("document.getElementById('named').value = 'shoes'")
        for _ in range(2):  # the first one compiles
            browser.run("document.getElementById('state').textContent = ''")
            browser.click("#run")
            browser.wait("document.getElementById('state').textContent.startsWith('done')", 60)
        browser.wait("(at => at.value === at.max)(document.getElementById('at'))", 60)
        clip = {"x": 0, "y": 0, "width": 985, "height": 770, "scale": 1}  # no scroll bar
        browser.picture(out, format="webp", quality=85, clip=clip)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
