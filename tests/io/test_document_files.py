"""PDF, DOCX, HTML and text files as documents: their texts, where values stand, what is refused."""

from __future__ import annotations

import json
import pickle
import re
import resource
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from command_line import jsonl
from document_files import ENCRYPTED, docx_of, form, invoice, pdf, pdf_of_glyphs, word
from report_data import data_of
from typer.testing import CliRunner

import schemax
from schemax import AttrSchema, Extractor, InputError, attr, load_document, load_documents
from schemax.attributes import compile_attributes
from schemax.base.resources import resource_dir
from schemax.commands.cli import app
from schemax.compiler import TextCodec
from schemax.formats import get_format
from schemax.io.document_files import read_document
from schemax.io.readers import InputFiles
from schemax.report import rows as report_rows
from schemax.results import Extraction, SlotText, build
from schemax.results.file_text import FileText

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Invoice(AttrSchema):
    number: str | None = attr(k_max=6)
    total: float | None = attr(k_max=6)


@pytest.fixture
def extractor(codec: TextCodec, decoder_model: Callable[..., Any]) -> Extractor:
    return Extractor(decoder_model().model, codec)


def read(data: bytes | str, name: str = "a.pdf") -> FileText:
    record = read_document(BytesIO(data.encode() if isinstance(data, str) else data), name)
    assert isinstance(record, dict), record
    assert record["id"] == name
    text = record["text"]
    assert isinstance(text, FileText)
    return text


def problem(data: bytes | str, name: str = "a.pdf") -> str:
    record = read_document(BytesIO(data.encode() if isinstance(data, str) else data), name)
    assert isinstance(record, InputError)
    assert str(record).startswith(f"cannot read {name}: ")
    return str(record).removeprefix(f"cannot read {name}: ")


def located(text: FileText, value: str) -> Any:
    at = text.index(value)
    return text.location(at, at + len(value))


def built(text: str, number: str, total: str) -> Extraction[Any]:
    """What becomes of a document of which a model wrote that."""
    slots = [SlotText(raw, "stop", 3, complete=True) for raw in (json.dumps(number), total)]
    attributes = compile_attributes(Invoice)
    format = get_format("json")
    return build(Invoice, attributes, slots, format, index=0, document_id="a", texts={"text": text})


def test_values_of_a_pdf_say_page_and_box() -> None:
    first = [(72, 700, "Invoice"), (72, 660, "INV-2031 of March")]
    text = read(pdf(first, [(300, 100, "Total due: 1,249.50 EUR")]))
    assert text == "Invoice\nINV-2031 of March\nTotal due: 1,249.50 EUR"
    item = built(text, "INV-2031", "1249.5")
    number, total = item.fields["number"], item.fields["total"]
    assert (number.location.page, total.location.page) == (1, 2)
    ((left, top, right, bottom),) = number.location.boxes
    # Baseline 660 of 842, and a font of 12 points.
    assert left == pytest.approx(72, abs=2)
    assert bottom == pytest.approx(842 - 660, abs=4)
    assert 10 < bottom - top < 15
    assert 45 < right - left < 60
    ((left, *_, bottom),) = total.location.boxes
    assert left > 300 + 50
    assert bottom == pytest.approx(842 - 100, abs=3)
    assert text[total.span.start : total.span.end] == "1,249.50"


def test_a_value_over_lines_has_a_box_on_each() -> None:
    text = read(pdf([(72, 700, "sold by Calder and"), (72, 680, "Sons Limited, London")]))
    page, boxes, paragraph = located(text, "Calder and\nSons Limited")
    assert (page, len(boxes), paragraph) == (1, 2, None)
    assert boxes[0][0] > boxes[1][0]
    assert boxes[0][3] < boxes[1][1] + 1


def test_a_value_over_pages_is_on_the_first() -> None:
    text = read(pdf([(72, 80, "Calder and")], [(72, 700, "Sons")]))
    location = located(text, "and\nSons")
    assert (location.page, len(location.boxes)) == (1, 1)


@pytest.mark.parametrize(
    ("more", "media", "expected"),
    [
        ("", "[0 0 600 800]", (50, 100)),
        ("", "[10 20 610 820]", (40, 120)),
        ("/CropBox [0 0 600 750]", "[0 0 600 800]", (50, 50)),
        ("/Rotate 90", "[0 0 600 800]", (700, 50)),
        ("/Rotate 180", "[0 0 600 800]", (550, 700)),
        ("/Rotate 270", "[0 0 600 800]", (100, 550)),
    ],
)
def test_boxes_are_where_the_page_shows_them(
    more: str, media: str, expected: tuple[float, float]
) -> None:
    """expected: the beginning of the baseline, from the top left corner."""
    text = read(pdf([(50, 700, "Hx")], more=more, media=media))
    (left, top, right, bottom) = located(text, "H").boxes[0]
    nearest = [min((left, right), key=lambda x: abs(x - expected[0]))]
    nearest += [min((top, bottom), key=lambda y: abs(y - expected[1]))]
    assert nearest == pytest.approx(expected, abs=4)


@pytest.mark.parametrize("turn", ["0 1 -1 0", "0 -1 1 0", "-1 0 0 -1", "0.7 0.7 -0.7 0.7"])
def test_turned_text_has_a_box_a_line(turn: str) -> None:
    text = read(pdf([(300, 400, "Invoice 77")], turn=turn))
    ((left, top, right, bottom),) = located(text, "Invoice 77").boxes
    assert max(right - left, bottom - top) > 40


def test_a_line_from_right_to_left_has_a_box() -> None:
    text = read(pdf_of_glyphs(*"םולש"))
    assert len(located(text, text).boxes) == 1


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("a stain-", "less knife of stainless steel"), "a stainless knife of stainless steel"),
        (("a water-", "resistant jacket"), "a water-resistant jacket"),
        (("to re-", "sign; re-sign, or resign"), "to re-sign; re-sign, or resign"),
        (("jane-", "doe@example.com of type AB-", "12"), "jane-doe@example.com of type AB-\n12"),
        (("from 10-", "20 EUR"), "from 10-\n20 EUR"),
    ],
)
def test_a_hyphen_at_the_end_of_a_line_goes_only_if_the_file_has_the_word(
    lines: tuple[str, ...], expected: str
) -> None:
    placed = [(72, 700 - 14 * row, line) for row, line in enumerate(lines)]
    text = read(pdf([(72, 700, "page")], placed, [(72, 700, "end")]))
    assert text == f"page\n{expected}\nend"
    assert [located(text, word).page for word in ("page", expected, "end")] == [1, 2, 3]
    (*_, bottom) = located(text, expected.split()[-1]).boxes[-1]
    assert bottom == pytest.approx(842 - placed[-1][1], abs=4)


@pytest.mark.parametrize(
    ("glyphs", "expected"),
    [
        ("😄|𠮷|𝐀", "😄𠮷𝐀"),
        ("ة|ي|ج|ا|ت|ن|لإ|ا", "الإنتاجية"),
        ("ن|\ufef9|ا", "الإن"),
        ("ن|مح|ا", "امحن"),
        ("ן|😄|א", "א😄ן"),
        ("o|ffi|ce", "office"),
    ],
)
def test_the_characters_of_a_glyph_are_whole_and_in_order(glyphs: str, expected: str) -> None:
    text = read(pdf_of_glyphs(*glyphs.split("|")))
    assert text == expected
    assert len(located(text, expected[0]).boxes) == 1


def test_words_under_an_annotation_are_whole() -> None:
    note = (
        "/Annots [<< /Type /Annot /Subtype /FreeText /Rect [70 690 200 720] /F 4 "
        "/AP << /N 6 0 R >> >>]"
    )
    shown = "BT /F1 12 Tf 2 12 Td (a note) Tj ET"
    form = (
        "6 0 obj\n<< /Type /XObject /Subtype /Form /BBox [0 0 130 30] /Resources << /Font << "
        f"/F1 3 0 R >> >> /Length {len(shown)} >>\nstream\n{shown}\nendstream\nendobj\nxref"
    )
    page = pdf([(72, 700, "Scal"), (95, 700, "ed")], more=note)
    text = read(page.replace(b"xref", form.encode(), 1))
    assert text == "Scaled\na note"
    ((left, top, _, bottom),) = located(text, "a note").boxes
    assert left == pytest.approx(72, abs=2)
    assert 842 - 720 < top < bottom < 842 - 690


def test_values_of_a_form_are_read() -> None:
    text = read(form("Ada Lovelace"))
    assert text == "Your name:\nAda Lovelace"
    page, ((left, top, _, bottom),), _ = located(text, "Ada Lovelace")
    assert page == 1
    assert 150 <= left < 160
    assert 842 - 712 <= top < bottom <= 842 - 690


def test_texts_of_files_travel() -> None:
    text = read(invoice())
    again = pickle.loads(pickle.dumps(text))
    assert (again, again.file, type(again)) == (text, "a.pdf", FileText)
    assert located(again, "1,249.50") == located(text, "1,249.50")


def test_a_text_that_looks_like_html_stays_as_it_is() -> None:
    text = read(pdf([(72, 700, "<b>5</b> &amp; 6")]))
    item = built(text, "<b>5</b> &amp; 6", "6")
    assert item.texts["text"] == "<b>5</b> &amp; 6"
    assert item.fields["number"].span == (0, 16, "text")


def test_text_files() -> None:
    text = read("BMW 320i\r\n\r\nred & <b>fast</b>", "a.md")
    assert text == "BMW 320i\n\nred & <b>fast</b>"
    assert located(text, "fast").paragraph == 2
    assert read("Preis: 5 €".encode("cp1252"), "a.txt") == "Preis: 5 €"
    assert read("5 €".encode("utf-16"), "a.txt") == "5 €"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (invoice(), "a.txt"),
        (b"\n\n" + invoice(), "a.pdf"),
        (docx_of(word("<w:p><w:r><w:t>Total due: 5</w:t></w:r></w:p>")), "a.pdf"),
        (b"<html><p>Total due: 5", "a.pdf"),
        (b"<html><p>Total due: 5", "a.docx"),
    ],
)
def test_the_first_bytes_say_what_a_file_is(data: bytes, name: str) -> None:
    assert "Total due" in read(data, name)
    assert "<" not in read(data, name)


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"", "a.pdf", "it is empty"),
        (b" \n", "a.txt", "it is empty"),
        (b"<p> </p>", "a.html", "it has no text"),
        (ENCRYPTED, "a.pdf", "it is encrypted; save it without its password"),
        (invoice()[:300], "a.pdf", "it is damaged: "),
        (pdf([], []), "a.pdf", "it has no text layer on its 2 pages, as of scans; recognise its"),
        (b"just text", "a.pdf", "it is no .pdf file, but some text"),
        (b"PK\3\4nothing", "a.docx", "it is damaged: "),
        (docx_of("<w:document"), "a.docx", "it is damaged: "),
        (b"\x89PNG\r\n\0", "a.png", "it is an image; recognise its text first (OCR)"),
        (b"\x89PNG\r\n\0", "a.pdf", "it is an image; recognise its text first (OCR)"),
        (b"\xd0\xcf\x11\xe0" + "EncryptedPackage".encode("utf-16-le"), "a.docx", "it is encrypted"),
        (b"\xd0\xcf\x11\xe0", "a.doc", "it is of an old kind of Office"),
        (b"{\\rtf1 a}", "a.rtf", "it is RTF; save it as .docx or .pdf"),
        (b"a\0b", "a.txt", "it is neither PDF, DOCX, HTML nor text"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, name: str, expected: str) -> None:
    assert problem(data, name).startswith(expected)


def test_a_scanned_page_among_others_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert read(pdf([(72, 700, "one")], [])).strip() == "one"
    assert "a.pdf: no text layer on 1 page of 2: 2;" in caplog.text


def test_entities_and_addresses_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("something was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    secret = tmp_path / "secret"
    secret.write_text("hidden words")
    head = f'<!DOCTYPE w [<!ENTITY x SYSTEM "{secret.as_uri()}">]>'
    found = read_document(
        BytesIO(docx_of(word("<w:p><w:r><w:t>a&x;b</w:t></w:r></w:p>", head))), "a.docx"
    )
    assert "hidden words" not in str(found)
    page = f"{head}<html><p>&x;a<img src='http://127.0.0.1:9/'><iframe src='{secret.as_uri()}'>"
    assert "hidden words" not in read(page, "a.html")


def test_entities_that_double_do_not_grow() -> None:
    lines = '<!ENTITY a0 "aaaaaaaaaa">' + "".join(
        f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12)
    )
    data = docx_of(word("<w:p><w:r><w:t>&a11;x</w:t></w:r></w:p>", f"<!DOCTYPE w [{lines}]>"))
    started = time.process_time()
    read_document(BytesIO(data), "a.docx")
    assert time.process_time() - started < 60  # only a hang fails


def test_an_archive_that_unpacks_to_much_is_refused() -> None:
    data = docx_of(word("<w:p/>" * 12_000_000))
    assert len(data) < 1_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert problem(data, "a.docx").startswith("its parts are larger than what is unpacked (64 MiB")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 << (10 if sys.platform == "linux" else 20)


@pytest.mark.parametrize("tag", ["div", "b", "table><tr><td"])
def test_html_may_be_nested(tag: str) -> None:
    text = read(f"<html><p>before<{tag}>" + f"<{tag}>" * 10_000 + "deep", "a.html")
    assert text.split() in (["before", "deep"], ["beforedeep"])


@pytest.mark.slow
def test_many_pages_are_read_in_bounded_time_and_memory() -> None:
    line = [(72, 700, "Total due: 1,249.50 EUR, page of a long document")] * 10
    data = pdf(*[line] * 1999, [(72, 700, "the last page")])
    started = time.process_time()
    text = read(data)
    assert time.process_time() - started < 120
    assert located(text, "last").page == 2000


def test_too_many_pages_and_characters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemax.io.pdf.MOST_PAGES", 1)
    assert problem(pdf([], [])).startswith("it has 2 pages, more than the 1 that are read")
    monkeypatch.setattr("schemax.io.pdf.MOST_CHARACTERS", 10)
    assert problem(invoice()).startswith("it has more than 10 characters; split it")
    monkeypatch.setattr("schemax.io.document_files.MOST_CHARACTERS", 10)
    assert problem("x" * 11, "a.txt").startswith("it has more than 10 characters; split it")
    monkeypatch.setattr("schemax.io.document_files.MOST_BYTES", 10)
    assert problem("x" * 11, "a.txt").startswith("it is larger than")


@pytest.mark.parametrize(
    ("name", "module"), [("a.pdf", "pypdfium2"), ("a.docx", "docx"), ("a.html", "selectolax")]
)
def test_a_missing_package_is_named(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(b"x")
    (tmp_path / "b.txt").write_text("a text needs none")
    for known in [one for one in sys.modules if one.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, module, None)  # which makes its import fail
    with pytest.raises(InputError, match=rf"needs {module}.*pip install '\.\[files\]'"):
        InputFiles.of([str(tmp_path / name)])
    assert len(list(load_documents(tmp_path / "b.txt"))) == 1


def inbox(folder: Path) -> Path:
    (folder / "inbox" / "more").mkdir(parents=True)
    files = {
        "a.pdf": invoice(),
        "b.PDF": b"%PDF-1.4 broken",
        "c.html": b"<p>Total due: 5",
        "more/d.txt": b"Total due: 6",
        "more/thumbs.xyz": b"0",
        ".hidden.txt": b"0",
        "_out.parquet.parts/x.txt": b"0",
    }
    for name, data in files.items():
        (folder / "inbox" / name).parent.mkdir(exist_ok=True)
        (folder / "inbox" / name).write_bytes(data)
    return folder / "inbox"


@pytest.mark.slow
def test_files_of_all_kinds_become_rows(
    extractor: Extractor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    inbox(tmp_path)
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "more.jsonl", [{"id": "J", "text": "Total due: 7"}])
    options: Any = {"extractor": extractor, "details": True}
    given = ["inbox", "more.jsonl"]
    summary = schemax.extract_files(Invoice, given, "out.parquet", **options)
    assert (summary.rows, summary.failed) == (5, 1)
    assert "inbox: 1 file of other kinds left out: inbox/more/thumbs.xyz" in caplog.text
    table = pq.read_table("out.parquet").to_pylist()
    names = ["inbox/a.pdf", "inbox/b.PDF", "inbox/c.html", "inbox/more/d.txt", "J"]
    assert [row["id"] for row in table] == names
    assert table[1]["_error"].startswith("cannot read inbox/b.PDF: it is damaged: ")
    assert {"page", "boxes", "paragraph"} <= set(
        pq.read_schema("out.parquet").field("total__location").type.names
    )
    again = schemax.extract_files(Invoice, ["inbox/*.pdf"], "again.jsonl", **options)
    assert (again.rows, again.failed) == (1, 0)
    values = extractor.extract(load_documents("inbox/a.pdf"), Invoice)
    assert values == extractor.extract([load_document("inbox/a.pdf")], Invoice)
    (row,) = map(json.loads, Path("again.jsonl").read_text().splitlines())
    assert (row["id"], row["attributes"]) == ("inbox/a.pdf", values[0].model_dump(mode="json"))


def test_files_that_fail_alike_are_counted_together(extractor: Extractor, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"scan{number}.pdf").write_bytes(pdf([]))
    summary = schemax.extract_files(
        Invoice, tmp_path / "*.pdf", tmp_path / "out.jsonl", extractor=extractor
    )
    ((kind, count),) = summary.failure_kinds
    assert count == 3
    assert kind.startswith("cannot read …: it has no text layer")


def test_documents_behind_addresses(extractor: Extractor) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/inbox/a.pdf", invoice())
    memory.pipe("/inbox/more/b.txt", b"Total due: 6")
    found = [str(record["id"]) for record in load_documents("memory://inbox/")]  # type: ignore[call-overload, index]
    assert found == ["memory://inbox/a.pdf", "memory://inbox/more/b.txt"]
    assert "Total due: 1,249.50" in load_document("memory://inbox/a.pdf")["text"]
    (record,) = load_documents("memory://inbox/*.pdf")
    assert record["text"] == load_document("memory://inbox/a.pdf")["text"]  # type: ignore[call-overload, index]


def test_a_run_over_documents_goes_on(extractor: Extractor, tmp_path: Path) -> None:
    inbox(tmp_path)
    out, left = tmp_path / "out.jsonl", [2]

    def stop(item: Extraction[Any]) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    place = tmp_path / "inbox"
    with pytest.raises(KeyboardInterrupt):
        schemax.extract_files(Invoice, place, out, extractor=extractor, on_extraction=stop)
    rest = schemax.extract_files(Invoice, place, out, extractor=extractor)
    assert (rest.rows, rest.computed) == (4, 2)


@pytest.mark.slow
def test_a_file_that_was_mended_is_read_again(extractor: Extractor, tmp_path: Path) -> None:
    place, out = inbox(tmp_path), tmp_path / "out.csv"
    options: Any = {"extractor": extractor, "details": True}
    first = schemax.extract_files(Invoice, place, out, **options)
    assert (first.rows, first.failed) == (4, 1)
    (place / "b.PDF").write_bytes(invoice())
    again = schemax.extract_files(Invoice, place, out, retry_failed=True, **options)
    assert (again.rows, again.failed, again.computed) == (4, 0, 1)
    (place / "b.PDF").write_bytes(b"")
    schemax.extract_files(Invoice, place, out, overwrite=True, **options)
    (place / "a.pdf").write_bytes(invoice("INV-9"))  # of which there is a row
    with pytest.raises(InputError, match=r"input .*a\.pdf changed"):
        schemax.extract_files(Invoice, place, out, retry_failed=True, **options)


@pytest.mark.slow
def test_long_documents_are_read_in_chunks(extractor: Extractor, tmp_path: Path) -> None:
    lines = [(72, 800 - 7 * n, f"Position {n} of the order, 12 pieces at 4.50") for n in range(100)]
    (tmp_path / "long.pdf").write_bytes(pdf(*[lines] * 6))
    found: list[Extraction[Any]] = []
    summary = schemax.extract_files(
        Invoice,
        tmp_path / "long.pdf",
        tmp_path / "out.jsonl",
        extractor=extractor,
        on_too_long="chunk",
        on_extraction=found.append,
    )
    assert summary.failed == 0
    (item,) = found
    assert isinstance(item.texts["text"], FileText)
    assert located(item.texts["text"], "Position 99").page == 1


def test_the_report_shows_the_page_with_the_value_marked(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf([], [(72, 700, "Invoice INV-2031: 5 EUR")]))
    text = load_document(tmp_path / "a.pdf")["text"]
    html = schemax.report([built(text, "INV-2031", "5")])
    (row,) = data_of(html)["rows"]
    ((page, image, width, height, marks),) = row["p"]
    assert (page, width, height) == (2, 595.0, 842.0)
    assert image.startswith("data:image/jpeg;base64,/9j/")
    assert len(image) < 200_000
    assert [mark[0] for mark in marks] == [0, 1]
    assert marks[0][1:] == list(located(text, "INV-2031").boxes[0])
    assert "img-src data:;" in html
    (tmp_path / "a.pdf").unlink()
    (row,) = data_of(schemax.report([built(text, "INV-2031", "5")]))["rows"]
    assert "p" not in row
    assert row["t"] == [["text", str(text)]]


def test_a_report_has_room_for_so_many_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_rows, "ROOM", 150_000)
    (tmp_path / "a.pdf").write_bytes(invoice())
    text = load_document(tmp_path / "a.pdf")["text"]
    rows = data_of(schemax.report([built(text, "INV-2031", "5")] * 40))["rows"]
    with_pages = [row for row in rows if "p" in row]
    assert len(rows) == 40
    assert 0 < len(with_pages) < 40


@pytest.mark.slow
def test_the_example_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "files.md").read_text("utf-8")
    blocks = re.findall(r"^```(python|bash|text)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["bash", "python", "bash", "python", "text"]
    _, (_, declaration), (_, command), (_, code), (_, shown) = blocks
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEMAX_MODEL", str(resource_dir("embedded")))
    (tmp_path / "inbox").mkdir()
    shutil.copy(DOCS / "samples" / "invoice.pdf", "inbox")
    Path("invoice.py").write_text(declaration)
    arguments = shlex.split(command.replace("inbox/*.pdf", "inbox/invoice.pdf"))[1:]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    (row,) = pq.read_table("invoices.parquet").to_pylist()
    assert (row["number"], row["total"]) == ("INV-2031", 282.5)
    assert (row["total__location"]["page"], len(row["total__location"]["boxes"])) == (1, 1)
    assert "data:image/jpeg" in Path("report.html").read_text("utf-8")
    command = "schemax report invoices.parquet -o again.html"
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    (again,) = data_of(Path("again.html").read_text("utf-8"))["rows"]
    assert again["p"][0][1].startswith("data:image/jpeg")
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(declaration + code, "files.md", "exec", dont_inherit=True), {"__name__": "x"})
    assert printed.getvalue() == shown


def test_documents_are_not_written(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", [{"text": "a"}])
    with pytest.raises(
        InputError, match=r"out.pdf: .pdf files are documents, which are read alone"
    ):
        schemax.extract_files(Invoice, source, tmp_path / "out.pdf", model="unused")


def test_a_pdf_under_another_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "scan").write_bytes(invoice())
    with pytest.raises(InputError, match=r"it is a PDF file; name it \.pdf"):
        InputFiles.of([str(tmp_path / "scan")])
    with pytest.raises(InputError, match="it is no document"):
        load_document(jsonl(tmp_path / "a.jsonl", [{"a": 1}]))
