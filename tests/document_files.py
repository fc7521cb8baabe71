"""PDF, DOCX and HTML files as tests make them."""

from __future__ import annotations

import zipfile
from base64 import b64decode
from collections.abc import Sequence
from io import BytesIO
from zlib import decompress

Line = tuple[float, float, str]
"""(x, y, text), in points from the bottom left corner of the page."""

A4 = "[0 0 595 842]"


def form(value: str) -> bytes:
    """A PDF file with a form field that has a value, without an appearance of its own."""
    fields = (
        f"/Annots [<< /Type /Annot /Subtype /Widget /FT /Tx /T (n) /V ({value}) /F 4 "
        "/Rect [150 690 350 712] >>]"
    )
    made = pdf([(72, 696, "Your name:")], more=fields).decode("latin-1")
    form = "/AcroForm << /DA (/F1 12 Tf) /DR << /Font << /F1 3 0 R >> >> /Fields [] >>"
    # PDFium makes a new table of places where the one of the file is wrong.
    return made.replace("/Type /Catalog", f"/Type /Catalog {form}").encode("latin-1")


def pdf(*pages: Sequence[Line], more: str = "", media: str = A4, turn: str = "1 0 0 1") -> bytes:
    """A PDF file in Helvetica, 12 points high.

    more: entries of all pages, such as "/Rotate 90". turn: a matrix that turns every line.
    """
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    kids = []
    for lines in pages:
        shown = "".join(f"BT /F1 12 Tf {turn} {x} {y} Tm ({text}) Tj ET\n" for x, y, text in lines)
        objects.append(f"<< /Length {len(shown)} >>\nstream\n{shown}endstream")
        kids.append(f"{len(objects) + 1} 0 R")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox {media} {more} /Contents {len(objects)} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    return _pdf_of(objects)


def pdf_of_glyphs(*glyphs: str) -> bytes:
    """A PDF file with a line of glyphs, each of which stands for a text of its own."""
    texts = "".join(
        f"<{65 + at:02X}> <{glyph.encode('utf-16-be').hex()}>\n" for at, glyph in enumerate(glyphs)
    )
    unicode = (
        "begincmap\n1 begincodespacerange\n<00> <FF>\nendcodespacerange\n"
        f"{len(glyphs)} beginbfchar\n{texts}endbfchar\nendcmap"
    )
    line = f"BT /F1 12 Tf 72 700 Td ({''.join(chr(65 + at) for at in range(len(glyphs)))}) Tj ET"
    return _pdf_of(
        [
            "<< /Type /Catalog /Pages 2 0 R >>",
            "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            f"<< /Type /Page /Parent 2 0 R /MediaBox {A4} /Contents 4 0 R "
            "/Resources << /Font << /F1 5 0 R >> >> >>",
            f"<< /Length {len(line)} >>\nstream\n{line}\nendstream",
            "<< /Type /Font /Subtype /TrueType /BaseFont /Helvetica /Encoding /WinAnsiEncoding "
            f"/FirstChar 65 /LastChar 90 /Widths [{'600 ' * 26}] /ToUnicode 6 0 R >>",
            f"<< /Length {len(unicode)} >>\nstream\n{unicode}\nendstream",
        ]
    )


def _pdf_of(objects: Sequence[str]) -> bytes:
    out = BytesIO()
    out.write(b"%PDF-1.4\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1"))
    table = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    out.writelines(f"{place:010d} 00000 n \n".encode() for place in places)
    out.write(
        f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n".encode()
    )
    return out.getvalue()


def invoice(number: str = "INV-2031", total: str = "1,249.50 EUR") -> bytes:
    lines = ["Invoice " + number, "Vendor: Calder Tools", "Total due: " + total]
    return pdf([(72, 770 - 20 * row, text) for row, text in enumerate(lines)])


def docx_of(document_xml: str) -> bytes:
    """The smallest DOCX file with this body."""
    office = "http://schemas.openxmlformats.org"
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{office}/package/2006/content-types"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-'
            'officedocument.wordprocessingml.document.main+xml"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{office}/package/2006/relationships"><Relationship Id="r1" '
            f'Type="{office}/officeDocument/2006/relationships/officeDocument" '
            'Target="word/document.xml"/></Relationships>',
        )
        archive.writestr("word/document.xml", document_xml)
    return out.getvalue()


def word(body: str, head: str = "") -> str:
    """A document.xml with this body, of elements w:..."""
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    inner = f"<w:body>{body}</w:body>"
    return f'<?xml version="1.0"?>{head}<w:document xmlns:w="{space}">{inner}</w:document>'


ENCRYPTED = decompress(
    b64decode(
        """
    eNqFUz1v3DYYnrpo6VBk68ChHm2RlEiRweEAiTwmbj4c3DnJYLgAc0c7amXqIPEMu0O3AOlWoECBTi2K/oouRYEumQIE
    CJC/EGQIMiVFh/bV3dlWcUO1UHxevc/zvB/auqfNNtlh0dbrN+9+jwjCqH70ZTQYRLGqFz4gEsW3ylmLDhIIjQ+j+I6b
    lbaoz9ABBoRJtkMFEinZERKi++dzh+J79ti10XAYOT/r6GiPdm/ufD4NZe3XnCg2ZbiJ/KKqgKBLvW3P60VA8Z53qq4W
    J34Ft6izN74QUTbYqj7uyST/ce+D86FF6SrnRlMv5mgwWCevrvEExfuN9e3cNs5Pz4EUEO1Oy6kb3yiAGYQhEi6Ux66t
    F80UrPC+lc5dz0fa82HKKrgGaqxscNpN65mL4tvOH4fHiPMuqQ2NsyfRj9fw6z+Hxf6n1z+/9f7VX/mH/Ffys5/eVU+e
    3f9o+8Xp8JuX8nnx6otvsw9//PPDV+bj767/8uaz7x+/ffj+k6d3/U+//d3Jr8nWRljPSGFbZ6ApKL7pqlMXyqmN4pEH
    Q6U/RvHD0ue+LS+AKJ4sHoVlcV2J5KLSjqFXKe9X2pFDgw1Bne542b2mnk5cQAcx7BlQuTPQ3z2BdhXrU63P3cMebdYf
    JBTUbYuG/qHBiOJEqFwJo6hRnGPJhSRJSrSWxhCa42GPR/R4oLLmfB7uuGBnsDnoyFatu5rPJFg/s83scjiEClhWNGAk
    wyKlKTVGqjzPNGWyGBU4SxJtAFV0xChhioiUESx0LrOcUS15IkhWFLjrAtpOYXdQAl0NJ6YTmynTXZqry300EIxKlmQs
    lUJzLTiRRgAdz2nGeKFwDqxEU9A2YpSpLNPdSTHTwnDoCUg9QLRX/1njjiKMZIQvH8QZSxg6QpcYgWktI/4SI5huYCCz
    gUHfN7A0ExsYyzZzOd/UyJL0CguNLSvXLIc3Kb92UEY8ruuA6OrX2/VHNcpW7+vhIrEOaXQw4DCohCuaSop1wojAjCvF
    8kJwoQUVw///4nD1f9omLDspJY62tkZ7JvoXtLpv1A==
    """
    )
)
"""A PDF file that a password is needed to open."""
