"""`schemax schemas`: lists the ready-made schemas."""

from __future__ import annotations

from schemax.attributes.ready_made import document_of, is_task, schema_names
from schemax.base.terminal import show, table


def schemas() -> None:
    """Lists the ready-made schemas. `schemax explain NAME` shows the attributes of one."""
    rows = [(name, document_of(name)) for name in schema_names()]
    rows.sort(key=lambda row: is_task(row[0]))
    columns = {
        "name": lambda row: row[0],
        "category": lambda row: row[1]["category"],
        "of": lambda row: "other texts" if is_task(row[0]) else "products",
        "attributes": lambda row: len(row[1]["properties"]),
    }
    show(table(rows, columns, left=3))
