"""Work in a thread of its own, between two bounded queues.

What feeds the work and what becomes of its results stay with the caller: its thread pulls the
input, hands it over, and takes results, so that the user's iterators and models are never touched
by another thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Ready(Generic[B]):
    """A result that needs no work: it goes past the thread."""

    result: B


def in_background(
    work: Callable[[Iterator[A]], Iterator[B]],
    items: Iterator[A | Ready[B]],
    *,
    ahead: int,
    unread: int,
) -> Iterator[B]:
    """The results of `work(items)`, which runs in a thread of its own while they are used.

    ahead: items that are handed over and not taken up yet; unread: results that wait to be used.
    The thread stops where either bound is met, and ends when the iterator is closed.

    Where `items` raises, what was taken from it is finished first; then the error is raised. What
    `work` raises is raised behind the results before it.
    """
    worker = _Worker(work, ahead, unread)
    try:
        yield from _results(worker, items)
    finally:
        worker.close()


def _results(worker: _Worker[A, B], items: Iterator[A | Ready[B]]) -> Iterator[B]:
    failure: Exception | None = None
    while True:
        # One that has little left to do is fed first; else results go first.
        if worker.is_open and not (worker.has_results and worker.is_busy):
            try:
                item = next(items)
            except StopIteration:
                worker.end()
            except Exception as error:
                failure = error
                worker.end()
            else:
                if isinstance(item, Ready):
                    yield item.result
                else:
                    worker.give(item)
            if worker.has_room:
                continue
        found = worker.take()
        if found is None:
            if worker.is_open:
                continue
            break
        yield found.result
    if failure is not None:
        raise failure


class _Worker(Generic[A, B]):
    """A thread, its two queues, and the lock that guards both."""

    def __init__(self, work: Callable[[Iterator[A]], Iterator[B]], ahead: int, unread: int) -> None:
        self._ahead, self._unread = ahead, unread
        self._given: deque[A] = deque()
        self._results: deque[Ready[B]] = deque()
        self._changed = threading.Condition()
        self._no_more = self._closed = self._done = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(work,), name="schemax-decoding", daemon=True
        )
        self._thread.start()

    # --- the caller's side -----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether more may be given."""
        return not self._no_more

    @property
    def has_room(self) -> bool:
        return self.is_open and len(self._given) < self._ahead

    @property
    def is_busy(self) -> bool:
        """Whether enough is waiting to be taken up."""
        return 2 * len(self._given) >= self._ahead

    @property
    def has_results(self) -> bool:
        return bool(self._results)

    def give(self, item: A) -> None:
        with self._changed:
            self._given.append(item)
            self._changed.notify_all()

    def end(self) -> None:
        """Says that nothing more will be given."""
        with self._changed:
            self._no_more = True
            self._changed.notify_all()

    def take(self) -> Ready[B] | None:
        """The next result, once there is one; None where more can be given, or all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._results or self._done or self.has_room)
            if self._results:
                self._changed.notify_all()
                return self._results.popleft()
            if self._done:
                self._no_more = True
                if self._error is not None:
                    raise self._error
            return None

    def close(self) -> None:
        with self._changed:
            self._closed = self._no_more = True
            self._changed.notify_all()
        self._thread.join()

    # --- the thread's side -----------------------------------------------------------------------

    def _run(self, work: Callable[[Iterator[A]], Iterator[B]]) -> None:
        try:
            for result in work(self._taken()):
                with self._changed:
                    self._changed.wait_for(
                        lambda: len(self._results) < self._unread or self._closed
                    )
                    if self._closed:
                        return
                    self._results.append(Ready(result))
                    self._changed.notify_all()
        except BaseException as error:  # raised again where results are taken
            self._error = error
        finally:
            with self._changed:
                self._done = True
                self._changed.notify_all()

    def _taken(self) -> Iterator[A]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._given or self._no_more or self._closed)
                if self._closed or not self._given:
                    return
                item = self._given.popleft()
                if 2 * len(self._given) < self._ahead:
                    self._changed.notify_all()
            yield item
