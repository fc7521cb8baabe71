"""The report in a real browser: everything that a reader of it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser, find_chromium
from report_page import Page, result

import schemax
from schemax import AttrSchema, Extraction, FieldError, FieldResult
from schemax.results import Span, failed

PROGRAM = find_chromium()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium")


class Boot(AttrSchema):
    brand: str | None
    size: float | None
    colours: list[str]


class Tea(AttrSchema):
    brand: str | None


BRANDS = ["Calder", "Ämber", "北風", "Northfell <b>", "Zephyr"]


def found(value: Any, text: str, confidence: float | None = None) -> FieldResult:
    """A value and where it stands in "title"."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    places = [(text.find(str(item)), len(str(item))) for item in items]
    spans = tuple(Span(at, at + size, "title") if at >= 0 else None for at, size in places)
    return result(json.dumps(value), value, spans, tokens=3, confidence=confidence)


def boot(index: int, *, confident: bool = True) -> Extraction[Any]:
    """Every 7th size is null, every 10th is one that could not be read, every 4th colour is not
    in the text; confidence is 0.00 to 0.99 in turn."""
    brand, size = BRANDS[index % 5], None if index % 7 == 0 else float(index % 50)
    colours = ["olive", "nowhere" if index % 4 == 0 else "navy"]
    text = f"👟🏽 {brand} boot, olive and navy, size {size}, number {index}"
    error = (FieldError("size", "not a number", "eight"),) if index % 10 == 0 else ()
    fields = {
        "brand": found(brand, text, index % 100 / 100 if confident else None),
        "size": found(size, text, 0.9 if confident else None),
        "colours": found(colours, text, 0.95 if confident else None),
    }
    value = Boot.model_construct()
    return Extraction(value, index, f"B{index:05}", error, fields, 7, {"title": text})


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    try:
        browser = Browser(PROGRAM, tmp_path_factory.mktemp("profile"))
    except (OSError, AssertionError):
        pytest.skip("Chromium does not start")
    yield browser
    browser.close()


@pytest.fixture
def page(chromium: Browser, tmp_path: Path) -> Iterator[Page]:
    """Holds every test to a quiet console and an unused network."""
    one = Page(chromium, tmp_path / "report.html")
    yield one
    assert chromium.trouble == []
    asked = [address for address in chromium.requests if not address.startswith("data:")]
    assert asked == [one.path.as_uri()]


@pytest.mark.slow
def test_thousands_of_rows_are_a_few_elements(page: Page) -> None:
    page.open([boot(n) for n in range(5000)])
    page.shown("5,000 rows")
    assert page.attribute("#grid", "aria-rowcount") == "5001"
    assert page.count("#body .row") < 60
    assert page.ids()[0] == "B00000"
    page.browser.run("document.getElementById('grid').scrollTop = 3000 * 30")
    page.wait("document.getElementById('body').textContent.includes('B03010')")
    assert page.count("#body .row") < 60
    page.press("End", ctrl=True)
    assert page.here().startswith("B04999")
    assert page.ids()[-1] == "B04999"
    assert page.count("*") < 1000


def test_filters_by_text_field_state_and_confidence(page: Page) -> None:
    page.open([boot(n) for n in range(200)])
    page.press("/", *"BOOT 北風", "Enter")
    page.shown("40 of 200 rows")
    assert page.ids()[0] == "B00002"
    page.click("#clear")
    page.shown("200 rows")
    page.choose("#field", "1")
    page.choose("#state", "null")
    page.shown("29 of 200 rows")
    page.choose("#state", "error")
    page.shown("20 of 200 rows")
    page.choose("#field", "")
    page.choose("#state", "ungrounded")
    page.shown("50 of 200 rows")
    page.choose("#field", "0")
    page.shown("0 of 200 rows")
    assert page.count("#none:not([hidden])") == 1
    page.choose("#state", "any")
    page.choose("#below", "0.1")
    page.shown("20 of 200 rows")
    assert page.text("#bound") == "0.10"
    page.choose("#field", "1")
    page.shown("0 of 200 rows")


def test_sorts_numbers_texts_and_nulls(page: Page) -> None:
    page.open([boot(n) for n in range(40)])
    header = "#head [role=columnheader]:nth-child({})".format
    assert page.attribute(header(4), "aria-sort") == "none"
    page.click(header(4))
    sizes = page.column(3)
    assert sizes[:3] == ["1", "2", "3"]
    assert page.attribute(header(4), "aria-sort") == "ascending"
    page.click(header(4))
    assert page.column(3)[:3] == ["39", "38", "37"]
    page.press("End", ctrl=True)
    assert page.column(3)[-6:] == ["–"] * 6
    page.click(header(4))
    assert page.ids()[:2] == ["B00000", "B00001"]
    page.click(header(2))
    assert page.column(1)[0] == "0.00"  # the lowest confidence of the row
    page.press("Home", "ArrowRight", "ArrowRight", "s")
    assert page.column(2)[0] == "Ämber"


def test_marks_stand_where_the_values_do(page: Page) -> None:
    page.open([boot(n) for n in range(20)])
    page.press("j", "j", "j", "ArrowRight", "ArrowRight", "Enter")
    marks = page.texts("#panel mark")
    assert marks == ["Northfell <b>", "olive", "navy", "3.0"]
    assert page.text("#panel .document") == (
        "👟🏽 Northfell <b> boot, olive and navy, size 3.0, number 3"
    )
    assert page.texts("#panel mark.active") == ["Northfell <b>"]
    labels = page.browser.run("[...document.querySelectorAll('#panel mark')].map(x => x.title)")
    assert labels == ["brand", "colours", "colours", "size"]
    page.click("#panel mark:nth-of-type(4)")
    assert page.texts("#panel .item.active .name") == ["size"]
    assert page.here() == "3"
    item = page.text("#panel .item.active")
    assert "wrote 3.0" in item
    assert "3 tokens" in item
    assert "stopped" in item
    assert "0.90" in item
    page.press("j")
    assert "B00004" in page.text("#panel h2")
    assert "1 of 2 found" in page.text("#panel .item:last-child")


def test_a_cell_says_in_words_what_its_looks_mean(page: Page) -> None:
    page.open([boot(0)])
    cell = "#body [role=gridcell]:nth-child({})".format
    # In one script: cells are drawn anew with later frames.
    over = "cell.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))"
    titles = [
        page.browser.run(
            f"(() => {{ const cell = document.querySelector('{cell(number)}'); {over};"
            " return cell.title; })()"
        )
        for number in range(1, 6)
    ]
    assert titles == [
        "",
        "confidence 0.00",
        "confidence 0.00",
        "confidence 0.90; not a number",
        "confidence 0.95; not in the text",
    ]


def test_overlapping_spans_are_all_marked(page: Page) -> None:
    spans = {"brand": Span(2, 9, "t"), "size": Span(5, 12, "t"), "colours": Span(5, 9, "t")}
    fields = {name: result("x", "x", (span,)) for name, span in spans.items()}
    page.open([Extraction(None, 0, None, (), fields, 0, {"t": "0123456789abcdef"})])
    page.press("Enter")
    assert page.texts("#panel mark") == ["234", "5678", "9ab"]
    titles = page.browser.run("[...document.querySelectorAll('#panel mark')].map(x => x.title)")
    assert titles == ["brand", "brand, size, colours", "size"]
    assert page.text("#panel .document") == "0123456789abcdef"


def test_the_keyboard_does_it_all(page: Page) -> None:
    page.open([boot(n) for n in range(300)])
    focused = "document.activeElement.id"
    assert page.browser.run(focused) == "grid"
    page.press("ArrowDown", "j", "ArrowUp", "k", "j", "ArrowRight", "ArrowRight", "ArrowLeft")
    assert page.here() == "0.01"
    page.press("End")
    assert page.here() == "olive, navy"
    page.press("Home", "PageDown")
    assert page.here().startswith("B000")
    page.press("Home", ctrl=True)
    assert page.here().startswith("B00000")
    page.press("Enter")
    assert page.count("#panel:not([hidden])") == 1
    page.press("Escape")
    assert page.count("#panel:not([hidden])") == 0
    page.press("/", "x", "j")
    assert page.browser.run("document.getElementById('search').value") == "xj"
    page.shown("0 of 300 rows")
    page.press("Escape", "Enter")
    assert page.text("#panel h2") == "No document"
    page.press("Escape", "?")
    assert page.browser.run("document.getElementById('help').open")
    page.press("Escape")
    assert not page.browser.run("document.getElementById('help').open")


def test_a_distribution_counts_and_filters(page: Page) -> None:
    page.open([boot(n) for n in range(100)])
    page.press(*["ArrowRight"] * 3, "d")  # the size
    tallies = dict(
        zip(page.texts("#panel .what"), page.texts("#panel .tally .figure"), strict=True)
    )
    assert tallies["is stated"] == "85"
    assert tallies["is null"] == "15"
    assert tallies["has an error"] == "10"
    assert tallies["1"] == "2"
    assert page.count("#panel .histogram") == 2  # numbers, confidences
    assert sum(x.startswith("and ") for x in page.texts("#panel .excerpt")) == 1
    page.choose("#panel select", "2")
    assert page.texts("#panel .what")[-3:] == ["olive", "navy", "nowhere"]
    page.click("#panel .tally:last-of-type")
    page.shown("25 of 100 rows")
    assert page.text("#only") == "colours = nowhere"
    assert page.texts("#panel .what")[-3:] == ["olive", "navy", "nowhere"]
    assert page.attribute("#panel .tally:last-of-type", "aria-pressed") == "true"
    page.click("#only")
    page.shown("100 rows")
    page.click(".chart")
    page.click("#panel .histogram button:first-child")
    page.shown("5 of 100 rows")  # confidence of the brand, 0 to 0.05


def test_several_schemas_share_a_table(page: Page) -> None:
    tea = Extraction(Tea.model_construct(), 0, "tea", fields={"brand": result("x", "Larkspur")})
    page.open([boot(1, confident=False), tea, failed(2, None, "line 3: broken JSON")])
    assert page.ids() == ["tea", "B00001", "#2"]  # by index
    assert page.count(".cell.absent") == 2 + 3
    assert page.count("#threshold[hidden]") == 1  # no confidence anywhere
    assert "line 3: broken JSON" in page.text("#body")
    page.choose("#layout", "1")
    assert page.texts("#head .label") == ["Document", "brand"]
    page.shown("1 of 3 rows")
    page.click("#clear")
    page.choose("#state", "error")
    page.shown("1 of 3 rows")
    page.press("Enter")
    assert page.text("#panel .problems") == "line 3: broken JSON"


def test_hostile_texts_are_shown_and_do_nothing(page: Page) -> None:
    text = "</script><img src=x onerror=alert(1)><!-- {{ 1 }} \u202e \0 \ud800 😀 end"
    at = text.index("end")
    field = result(text, text, (Span(at, at + 3, text),))
    page.open(
        [Extraction(None, 0, text, (FieldError(None, text),), {text: field}, 0, {text: text})]
    )
    page.press("ArrowRight", "Enter")
    assert page.count("img") == 0
    assert page.texts("#panel mark") == ["end"]
    for place in ("#panel .document", "#panel .shown", "#body .value", "#body .id"):
        shown = f"document.querySelector({json.dumps(place)}).textContent"
        assert page.browser.run(f"{shown} === {json.dumps(text)}"), place


@pytest.mark.slow
def test_left_out_rows_and_a_narrow_screen(page: Page) -> None:
    schemax.report([boot(n) for n in range(30)], page.path, limit=10)
    page.browser.open(page.path, width=400, height=700)
    assert page.text("#notice") == (
        "The page holds the first 10 documents; 20 more are in the results only."
    )
    page.press("Enter")
    box = page.browser.run(
        "(() => {const {left, right} = document.getElementById('panel').getBoundingClientRect();"
        "return [left, right]})()"
    )
    assert box == [0, 400]
    assert page.browser.run("document.documentElement.scrollWidth") <= 400


def test_pages_of_a_file_have_boxes_where_the_values_stand(page: Page, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    from document_files import pdf
    from test_document_files import built, located

    (tmp_path / "a.pdf").write_bytes(pdf([(72, 700, "Invoice INV-2031: 5 EUR")]))
    text = schemax.load_document(tmp_path / "a.pdf")["text"]
    page.open([built(text, "INV-2031", "5")])
    page.shown("1 row")
    page.browser.run("panel.document()")
    page.wait("document.querySelector('.page img')?.naturalWidth > 0")
    assert page.count(".page .box") == 2
    # In parts of the page, from its top left corner.
    script = """JSON.stringify((() => {
        const image = document.querySelector(".page img").getBoundingClientRect();
        const box = document.querySelector(".page .box").getBoundingClientRect();
        return [(box.left - image.left) / image.width, (box.top - image.top) / image.height,
                (box.right - image.left) / image.width, (box.bottom - image.top) / image.height];
    })())"""
    left, top, right, bottom = located(text, "INV-2031").boxes[0]
    expected = [left / 595, top / 842, right / 595, bottom / 842]
    assert json.loads(page.browser.run(script)) == pytest.approx(expected, abs=0.01)
    page.click(".page .box")
    assert page.count(".page .box.active") == 1
