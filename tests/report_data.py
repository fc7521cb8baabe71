"""The data of a report's page."""

from __future__ import annotations

import json
import re
from typing import Any


def data_of(html: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    data: dict[str, Any] = json.loads(text)
    return data
