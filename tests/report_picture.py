"""Takes the picture of a report that the documentation shows: `python report_picture.py OUT.webp`.

The listings were written for this purpose; what is read of them is what `small` reads.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

from chromium import Browser, find_chromium

import schemax
from schemax import Extractor, load_schema

LISTINGS = """
Northfell Women's Tamarack Waterproof Hiking Boot, Dark Olive, 8.5 M US
Calder & Sons Men's Leather Slip-On Loafer Brown Size 11
Aurelle Women's Bianca Pointed Toe Ballet Flat, Blush Suede, 7.5
TrailHart Kids' Pebble Sandal, Navy/Lime, Toddler 9
Kestrel Men's Airlane Running Shoe, White/Volt, 10.5 D(M) US
Solenne Women's Marisol Espadrille Wedge Sandal, Natural, 8 B(M) US
Brackwater Men's Harbor Rubber Rain Boot, Black, 12
Juniper & Fox Women's Clara Ankle Bootie, Cognac Leather, 9 M US
Ridgeback Men's Steel Toe Work Boot, Wheat Nubuck, 9.5 Wide
Petal Street Girls' Mary Jane Flat, Patent Black, 13 M US Little Kid
Vantor Men's Court Classic Sneaker, Off White, Size 9
Aurelle Women's Celeste Block Heel Pump, Black Patent, 6.5 W
Kestrel Women's Driftknit Walking Shoe, Grey/Coral, 8
Calder & Sons Men's Wingtip Oxford, Burgundy, 10 EE
Marlowe Unisex Garden Clog, Sage, M9/W11
Northfell Men's Sawtooth Mid Hiking Boot, Brown/Orange, 11.5
Solenne Women's Lido Flip Flop, Turquoise, 7 M US
TrailHart Women's Switchback Trail Runner, Plum, 9.5
Juniper & Fox Women's Willa Tall Riding Boot, Espresso, 8.5 M US Wide Calf
Brackwater Women's Tide Canvas Slip-On, Striped Navy, 10
Ridgeback Men's Foundry Moc Toe Chukka, Tan Suede, 13
Petal Street Toddler Light-Up Sneaker, Pink Glitter, 6 M US
Vantor Women's Metro Platform Sneaker, White/Gold, 7
Marlowe Men's Shearling Lined Slipper, Chestnut, Large (11-12)
""".strip().splitlines()


def main(out: Path) -> None:
    program = find_chromium()
    if program is None:
        sys.exit("no Chromium here")
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        records = [{"id": f"S-{1040 + 7 * n}", "title": text} for n, text in enumerate(LISTINGS)]
        items = Extractor.from_pretrained("small").stream(records, load_schema("shoes"))
        page = Path(folder) / "report.html"
        schemax.report(items, page, title="shoes.jsonl")
        browser = Browser(program, Path(folder) / "profile")
        browser.open(page, width=1280, height=640)
        browser.press("ArrowRight", "ArrowRight", "Enter")
        browser.picture(out, format="webp", quality=80)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
