"""Work in a thread of its own: order, bounds, failures, and an end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from schemax.background import Ready, in_background


def doubled(items: Iterator[int]) -> Iterator[int]:
    for item in items:
        yield 2 * item


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "schemax-decoding"]


def test_results_come_in_order_and_ready_ones_at_once() -> None:
    items: list[int | Ready[int]] = [1, Ready(-1), 2, 3, Ready(-2)]
    found = list(in_background(doubled, iter(items), ahead=2, unread=2))
    assert [value for value in found if value > 0] == [2, 4, 6]
    assert [value for value in found if value < 0] == [-1, -2]
    assert not threads()


def test_what_needs_no_work_waits_for_nothing() -> None:
    """The work never gives anything, and the input never ends."""

    def endless() -> Iterator[int | Ready[int]]:
        yield Ready(0)
        while True:
            yield 1

    def silent(items: Iterator[int]) -> Iterator[int]:
        for _ in items:
            pass
        yield from ()

    results = in_background(silent, endless(), ahead=4, unread=4)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert not threads()


def test_the_input_stays_with_the_caller() -> None:
    seen: set[int] = set()

    def items() -> Iterator[int]:
        for number in range(50):
            seen.add(threading.get_ident())
            yield number

    ran: set[int] = set()

    def work(numbers: Iterator[int]) -> Iterator[int]:
        for number in numbers:
            ran.add(threading.get_ident())
            yield number

    assert list(in_background(work, items(), ahead=3, unread=3)) == list(range(50))
    assert seen == {threading.get_ident()}
    assert threading.get_ident() not in ran


@pytest.mark.parametrize(("ahead", "unread"), [(1, 1), (2, 5), (8, 1), (64, 64)])
def test_neither_queue_grows_beyond_its_bound(ahead: int, unread: int) -> None:
    given = taken = made = 0
    lead: list[int] = []

    def items() -> Iterator[int]:
        nonlocal given
        for number in range(300):
            lead.append(given - taken)
            given += 1
            yield number

    def work(numbers: Iterator[int]) -> Iterator[int]:
        nonlocal taken, made
        for number in numbers:
            taken += 1
            made += 1
            yield number

    used = 0
    for used, _ in enumerate(in_background(work, items(), ahead=ahead, unread=unread), 1):
        assert made - used <= unread + 1  # one is in the thread's hands
    assert used == 300
    assert max(lead) <= ahead


def test_a_failing_input_is_told_behind_what_was_taken_before() -> None:
    def broken() -> Iterator[int]:
        yield from range(20)
        raise OSError("the disk is gone")

    found: list[int] = []
    with pytest.raises(OSError, match="the disk is gone"):
        found.extend(in_background(doubled, broken(), ahead=4, unread=4))
    assert found == [2 * number for number in range(20)]
    assert not threads()


def test_failing_work_is_told_behind_its_results() -> None:
    def failing(items: Iterator[int]) -> Iterator[int]:
        for item in items:
            if item == 7:
                raise ValueError("seven")
            yield item

    found: list[int] = []
    with pytest.raises(ValueError, match="seven"):
        found.extend(in_background(failing, iter(range(100)), ahead=4, unread=4))
    assert found == list(range(7))
    assert not threads()


def test_a_consumer_that_leaves_ends_the_thread() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    results = in_background(doubled, endless(), ahead=4, unread=4)
    assert [next(results) for _ in range(10)] == [2 * number for number in range(10)]
    results.close()  # type: ignore[attr-defined]
    assert not threads()


def test_work_goes_on_while_results_are_used() -> None:
    """The second result is made while the first is in the caller's hands."""
    made_second = threading.Event()

    def work(items: Iterator[int]) -> Iterator[int]:
        for item in items:
            if item == 1:
                made_second.set()
            yield item

    results = in_background(work, iter(range(3)), ahead=4, unread=4)
    assert next(results) == 0
    assert made_second.wait(timeout=600)
    assert list(results) == [1, 2]
