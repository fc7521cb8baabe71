"""DOCX files and their kin as documents: what Word shows, and what other files of Office are."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import docx
import openpyxl
import pytest
from document_files import docx_of, word
from test_document_files import built, located, read

from schemax import InputError, load_document
from schemax.io.readers import check_format, columns_of, read_file


def test_docx(tmp_path: Path) -> None:
    made = docx.Document()
    made.sections[0].header.paragraphs[0].text = "Calder Tools"
    made.sections[0].footer.paragraphs[0].text = "page of"
    made.add_heading("Invoice 77")
    table = made.add_table(2, 3)
    for row, cells in enumerate((("Item", "", "Price"), ("Tea\nleaf", "", "3.50"))):
        for column, cell in enumerate(cells):
            table.cell(row, column).text = cell
    made.add_paragraph("Total: 3.50")
    made.save(tmp_path / "a.docx")
    record = load_document(tmp_path / "a.docx")
    text = record["text"]
    lines = ["Calder Tools", "Invoice 77", "Item\t\tPrice", "Tea leaf\t\t3.50", "Total: 3.50"]
    assert text.split("\n") == [*lines, "page of"]
    assert record["id"] == str(tmp_path / "a.docx")
    item = built(text, "77", "3.5")
    assert item.fields["number"].location == (None, (), 2)
    assert item.fields["total"].location == (None, (), 4)
    assert located(text, "Calder").paragraph == 1


def test_what_word_shows_is_read_and_nothing_else() -> None:
    run = "<w:r><w:t>{}</w:t></w:r>"
    body = (
        f"<w:p><w:ins>{run.format('new')}</w:ins><w:del><w:r><w:delText>old</w:delText></w:r>"
        "</w:del></w:p>"
        f"<w:sdt><w:sdtContent><w:p>{run.format('control')}</w:p></w:sdtContent></w:sdt>"
        f"<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr>{run.format('a')}<w:r><w:tab/></w:r>"
        f"{run.format('b')}<w:r><w:br/></w:r>{run.format('c')}</w:p>"
        "<w:p><w:r><w:instrText>DATE</w:instrText></w:r></w:p>"
    )
    assert read(docx_of(word(body)), "a.docx") == "new\ncontrol\na\tb\nc"


def run(text: str, settings: str = "") -> str:
    return f"<w:r><w:rPr>{settings}</w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>"


RAISED, LOWERED = (f'<w:vertAlign w:val="{kind}script"/>' for kind in ("super", "sub"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (run("$49") + run("9", RAISED) + run("9", RAISED) + run(" each"), "$49 99 each"),
        (run("10") + run("6", RAISED) + run(" H") + run("2", LOWERED) + run("O"), "10⁶ H₂O"),
        (run("99", "<w:strike/>") + run("79") + run("."), "99 79."),
        (run("99", "<w:dstrike/>") + run("79"), "99 79"),
        (run("9", '<w:strike w:val="0"/>') + run("9", '<w:vertAlign w:val="baseline"/>'), "99"),
        (run("a", RAISED) + "</w:p><w:p>" + run("b", RAISED), "a\nb"),
        (
            f"<w:moveFrom>{run('5 EUR')}</w:moveFrom>{run('Total: ')}<w:moveTo>{run('5 EUR')}"
            "</w:moveTo><w:del><w:r><w:br/></w:r></w:del>",
            "Total: 5 EUR",
        ),
        (
            f"<w:r><w:ruby><w:rt>{run('やまだ')}</w:rt><w:rubyBase>{run('山田')}</w:rubyBase>"
            f"</w:ruby></w:r>{run('さん')}",
            "山田 やまだ さん",
        ),
        ('<w:r><w:sym w:font="Symbol" w:char="F0A3"/></w:r>' + run("5"), "≤5"),
        ('<w:r><w:sym w:font="Wingdings" w:char="00FC"/></w:r>', "✓"),
        ('<w:r><w:sym w:font="Own" w:char="F0FC"/></w:r>', "\ufffd"),
        (run("left") + "<w:r><w:ptab/></w:r>" + run("right"), "left\tright"),
    ],
)
def test_what_word_sets_apart_stays_apart(body: str, expected: str) -> None:
    assert read(docx_of(word(f"<w:p>{body}</w:p>")), "a.docx") == expected


@pytest.mark.parametrize(
    ("equation", "expected"),
    [
        ("450", "450"),
        ("<f><num>a+b</num><den>2</den></f>", "(a+b)/(2)"),
        ("<sSup><e>10</e><sup>6</sup></sSup>", "10^(6)"),
        ("<sSub><e>x</e><sub>max</sub></sSub>", "x_(max)"),
        ("<rad><deg/><e>x+1</e></rad>", "√(x+1)"),
        ("<rad><deg>3</deg><e>8</e></rad>", "√(3&amp;8)"),
        ("<d><dPr><begChr val='['/><endChr val=')'/></dPr><e>0;1</e></d>", "[0;1)"),
        ("<func><fName>sin</fName><e>x</e></func>", "sin x"),
        ("<nary><naryPr><chr val='∑'/></naryPr><sub>i</sub><sup/><e>x</e></nary>", "∑_(i)x"),
    ],
)
def test_equations_are_read(equation: str, expected: str) -> None:
    runs = re.sub(r"(?<![^>])([^<>]+)(?![^<])", r"<r><t>\1</t></r>", equation)
    omml = re.sub(r"(</?)(\w)", r"\1m:\2", runs).replace("val=", "m:val=")
    space = "http://schemas.openxmlformats.org/officeDocument/2006/math"
    body = f"<w:p>{run('y = ')}<m:oMath xmlns:m='{space}'>{omml}</m:oMath>{run(' EUR')}</w:p>"
    text = read(docx_of(word(body)), "a.docx")
    assert text == f"y = {expected.replace('&amp;', '&')} EUR"


def rewritten(data: bytes, *changes: tuple[str, str]) -> bytes:
    """The archive with changes of the texts of its XML."""
    out = BytesIO()
    with ZipFile(BytesIO(data)) as archive, ZipFile(out, "w") as changed:
        for name in archive.namelist():
            part = archive.read(name)
            for old, new in changes if name.endswith((".xml", ".rels")) else ():
                part = part.replace(old.encode(), new.encode())
            changed.writestr(name, part)
    return out.getvalue()


SPACES = ("wordprocessingml", "spreadsheetml", "drawingml", "officeDocument")
STRICT = [
    (f"http://schemas.openxmlformats.org/{name}/2006/", f"http://purl.oclc.org/ooxml/{name}/")
    for name in SPACES
]
BOOK = "openxmlformats-officedocument.spreadsheetml.sheet"
PLAIN = "openxmlformats-officedocument.wordprocessingml.document.main"


def letter() -> bytes:
    out = BytesIO()
    document = docx.Document()
    document.sections[0].header.paragraphs[0].text = "Calder"
    document.add_paragraph("Total: 5")
    document.save(out)
    return out.getvalue()


def workbook() -> bytes:
    out = BytesIO()
    book = openpyxl.Workbook()
    book.active.append(["id", "title"])
    book.active.append([1, "mug"])
    book.save(out)
    return out.getvalue()


@pytest.mark.parametrize(
    "changes",
    [
        STRICT,
        [(PLAIN, "ms-word.document.macroEnabled.main")],
        [(PLAIN, PLAIN.replace("document.main", "template.main"))],
    ],
)
def test_kin_of_docx_is_read(changes: list[tuple[str, str]]) -> None:
    data = rewritten(letter(), *changes)
    assert data != letter()
    assert read(data, "a.docm") == "Calder\nTotal: 5"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("a.xlsx", STRICT),
        (
            "a.xlsm",
            [
                (
                    "openxmlformats-officedocument.spreadsheetml.sheet.",
                    "ms-excel.sheet.macroEnabled.",
                )
            ],
        ),
    ],
)
def test_kin_of_xlsx_is_read(name: str, changes: list[tuple[str, str]], tmp_path: Path) -> None:
    data = rewritten(workbook(), *changes)
    assert data != workbook()
    (tmp_path / name).write_bytes(data)
    assert columns_of(str(tmp_path / name)) == ["id", "title"]
    assert list(read_file(str(tmp_path / name))) == [{"id": 1, "title": "mug"}]


def archive(mimetype: str) -> bytes:
    out = BytesIO()
    with ZipFile(out, "w") as written:
        written.writestr("mimetype", mimetype)
    return out.getvalue()


SLIDES = rewritten(letter(), (PLAIN, "openxmlformats-officedocument.presentationml.slideshow.main"))
ENCRYPTED = b"\xd0\xcf\x11\xe0" + "EncryptedPackage".encode("utf-16-le")


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (workbook(), "a.docx", "it is an Excel workbook; name it .xlsx"),
        (workbook(), "a", "it is an Excel workbook; name it .xlsx"),
        (letter(), "a.xlsx", "it is a Word document; name it .docx"),
        (letter(), "a", "it is a Word document; name it .docx"),
        (SLIDES, "a.pptx", "it is a PowerPoint presentation; save it as .pdf"),
        (SLIDES, "a", "it is a PowerPoint presentation; save it as .pdf"),
        (archive("application/epub+zip"), "a.epub", "it is an e-book (EPUB); convert it to .html"),
        (archive("application/vnd.oasis.opendocument.text"), "a.odt", "it is an OpenDocument file"),
        (archive("x"), "a", "it is a ZIP archive; unpack it"),
        (
            rewritten(workbook(), (f"{BOOK}.main+xml", "ms-excel.sheet.binary.main")),
            "a.xlsb",
            "it is an Excel workbook in binary form; save it as .xlsx",
        ),
        (ENCRYPTED, "a.xlsx", "it is encrypted; save it without its password"),
        (ENCRYPTED, "a.docx", "it is encrypted; save it without its password"),
        (ENCRYPTED[:4], "a.xlsx", "it is of an old kind of Office or Outlook; save it as .docx, ."),
    ],
)
def test_what_else_it_is_is_told(data: bytes, name: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    try:
        (error,) = read_file(str(tmp_path / name))
    except InputError as raised:
        error = raised
    assert f": {expected}" in str(error)
    assert str(error).startswith(f"cannot read {tmp_path / name}")


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(InputError, match=r"cannot read \S+ any further: File is not a zip file"):
        list(read_file(str(tmp_path / "a")))


def test_a_workbook_of_broken_xml_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(rewritten(workbook(), ("</workbook>", "</book>")))
    with pytest.raises(InputError, match=r"not a workbook: .*mismatch"):
        list(read_file(str(tmp_path / "a.xlsx")))


def test_workbooks_with_macros_are_not_written() -> None:
    with pytest.raises(InputError, match=r"cannot write a.xlsm: .xlsm files are only read; use"):
        check_format("a.xlsm", "write")
