"""Garbage collections leave out what was loaded before documents are read."""

from __future__ import annotations

import gc

from schemax.base.process import frozen_heap


def test_what_is_there_is_left_out_for_as_long_as_the_context_lasts() -> None:
    kept = [{"there": True}]
    with frozen_heap():
        later = [{"later": True}]
        assert gc.get_freeze_count() > 1000
        collected = gc.get_objects()
        assert not any(one is kept for one in collected)
        assert any(one is later for one in collected)
    assert gc.get_freeze_count() == 0
    assert any(one is kept for one in gc.get_objects())


def test_collections_are_rarer_meanwhile_and_stay_off_where_they_are_off() -> None:
    usual = gc.get_threshold()
    with frozen_heap():
        assert gc.get_threshold()[0] > usual[0]
        assert gc.get_threshold()[1:] == usual[1:]
    assert gc.get_threshold() == usual
    try:
        gc.set_threshold(0)
        with frozen_heap():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*usual)
