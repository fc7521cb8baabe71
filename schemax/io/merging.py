"""Merges the finished tables of shards into the table of one run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import merge
from typing import Any

from schemax.base.messages import counted, some_of
from schemax.errors import InputError
from schemax.io import fingerprint
from schemax.io.finished import (
    RunRecord,
    add_key,
    keyed_results,
    read_run_record,
    tables_of,
    write_keys,
)
from schemax.io.job import Place
from schemax.io.readers import Shard
from schemax.io.storage import place_of, suffixes
from schemax.io.summary import COSTS, Summary, Tally
from schemax.io.writers import check_target, open_writer

_OWN = ("shard", "records")  # settings in which tables of one run may differ


def merge_tables(tables: Iterable[Place], output: Place) -> Summary:
    """Merges the tables of all shards of a run, in the order of the input.

    tables: paths, addresses and patterns of tables that runs with `shard` have written. They stay.
    output: a file of the same format, with a record of its own, as if one run had written it.

    Runs in bounded memory; OUTPUT gets its name when it is complete. Returns the summary of all
    rows, with the costs of all runs.

    Raises InputError for tables that were made differently, that no run has made, or that are not
    all shards of one run, each once.
    """
    name = os.fspath(output)
    names = [*dict.fromkeys(table for place in tables for table in tables_of(os.fspath(place)))]
    check_target(name)
    if place_of(name) in map(place_of, names):
        raise InputError(f"cannot write {name}: it is one of the tables; name another file")
    records = {table: read_run_record(table) for table in names}
    record = common_record(records)
    _check_all(records)
    if different := [table for table in names if suffixes(table)[0] != suffixes(name)[0]]:
        raise InputError(
            f"cannot write {name}: {different[0]} has another format, which keeps values "
            "differently; name an output of the same format"
        )
    tally, keys, last = Tally(), bytearray(), -1
    with open_writer(name, record.table) as writer:
        for row in merge(*map(keyed_results, names), key=lambda row: row["index"]):
            if row["index"] == last:
                raise InputError(f"two of the tables have the row with index {last}")
            last = row["index"]
            add_key(keys, row.pop("key"))
            writer.write(row)
            tally.add_row(row)
        costs = {cost: getattr(record.summary, cost) for cost in (*COSTS, "repeats")}
        summary = replace(tally.summary(record.summary.inputs, name), **costs)
        shards = sorted((shard.settings for shard in records.values()), key=_number)
        digests = [digest for shard in shards for digest in shard.get("records", ())]
        settings = {**_shared(record.settings), "shard": str(Shard()), "records": digests}
        command = _shared(record.command)
        replace(record, summary=summary, settings=settings, command=command).write()
    write_keys(name, bytes(keys))
    return summary


def common_record(records: Mapping[str, RunRecord]) -> RunRecord:
    """The common record of tables that were made the same way, with the costs of all.

    records: by table. Raises InputError, naming the difference, for tables that differ.
    """
    (first, record), *more = records.items()
    summary = record.summary
    for name, another in more:
        changes = fingerprint.differences(_shared(record.settings), _shared(another.settings))
        if another.table != record.table:
            changes.append("the columns differ")
        if changes:
            raise InputError(f"{name} and {first} were made differently: {'; '.join(changes)}")
        summary = summary.plus(another.summary, "rows", "failed", "field_errors", "repeats")
    return replace(record, summary=summary)


def _shared(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in _OWN}


def _number(settings: Mapping[str, Any]) -> int:
    return Shard.parse(settings["shard"]).number


def _check_all(records: Mapping[str, RunRecord]) -> None:
    """Raises InputError for shards that are missing or repeated."""
    shards = [Shard.parse(record.settings["shard"]) for record in records.values()]
    wanted = [Shard(number, shards[0].count) for number in range(shards[0].count)]
    if missing := [str(shard) for shard in wanted if shard not in shards]:
        raise InputError(f"the tables of these shards are missing: {some_of(missing)}")
    if len(shards) != len(wanted):
        raise InputError(f"{len(records)} tables are given of {counted(len(wanted), 'shard')}")
