"""A thread that runs a model for all calls, so that simultaneous calls share passes.

The caller's thread alone reads the iterators that feed a call, and handles its results.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakSet

from schemax.base.process import give_back_threads
from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.engine.decode import AnyModel, PausableRequests, passes
from schemax.runtime.engine.fork import ForkModel
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.requests import Filled, Request

THREAD_NAME = "schemax-decoding"

# Requests of a call that are not taken up yet, and outputs that wait to be used.
_AHEAD, _UNREAD = 1024, 1024
# Schemas after which a lane's tables are made anew: they only grow.
_MOST_LAYOUTS = 256


class SharedEngine:
    """Runs a model for calls; its thread lives while there are any.

    Calls of a lane share passes: all calls of the same `batch_size`. Lanes take turns, a pass each;
    the calls of a lane take turns, a request each.
    """

    def __init__(self, model: AnyModel) -> None:
        self.model = model
        self.has_passes = isinstance(model, DecoderModel | ForkModel)
        # Reentrant, since a forgotten call may be closed by the garbage collector, at any time.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._calls: list[Call] = []
        self._thread: threading.Thread | None = None
        self.is_closed = False

    def call(self, config: DecodingConfig) -> Call:
        """A call, to be closed in the end. Raises ModelError where the engine is closed."""
        give_back_threads()  # the engine's thread computes from now on, not this one
        with self.lock:
            if self.is_closed:
                raise ModelError("the extractor is closed; make another one")
            call = Call(self, config)
            self._calls.append(call)
            if self._thread is None:
                # A daemon: a call that is never closed keeps no process from ending.
                self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
                self._thread.start()
                _started.add(self)
            self._changed.notify_all()
            return call

    def close(self) -> None:
        """Takes no more calls and no more requests, and waits until those that it has are done."""
        with self.lock:
            self.is_closed = True
            for call in self._calls:
                call.notify()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None)

    def abandon(self) -> None:
        """Closes all calls, and waits until the pass under way is done."""
        with self.lock:
            for call in self._calls:
                call.is_closed = True
            self._changed.notify_all()
            # A forked process has the calls of its parent, without the thread.
            while self._thread is not None and self._thread.is_alive():
                self._changed.wait(0.1)

    def notify(self) -> None:
        with self.lock:
            self._changed.notify_all()

    def wait_until_left(self, call: Call) -> None:
        """Waits until the model no longer works for a closed call."""
        with self.lock:
            if self._thread is not threading.current_thread():
                self._changed.wait_for(
                    lambda: self._thread is None or (call not in self._calls and self._calls)
                )

    # --- the thread's side -----------------------------------------------------------------------

    def _run(self) -> None:
        lanes: dict[Any, _Lane] = {}
        while self._begin_turn(lanes):
            for key, lane in list(lanes.items()):
                try:
                    done = next(lane.passes, None)
                except BaseException as error:  # raised again where results are taken
                    del lanes[key]
                    self._fail(lane, error)
                else:
                    if done is None:
                        del lanes[key]
                    elif done:
                        self._deliver(lane, done)

    def _begin_turn(self, lanes: dict[Any, _Lane]) -> bool:
        """Waits for work, lets go of closed calls, and opens lanes; False where all is done."""
        with self.lock:
            self._changed.wait_for(
                lambda: (
                    lanes
                    or all(call.is_closed for call in self._calls)
                    or self.is_closed
                    or any(call.is_closed or call.has_work for call in self._calls)
                )
            )
            for call in [call for call in self._calls if call.is_closed]:
                self._calls.remove(call)
                if call.lane is not None:
                    call.lane.cancel(call)
            for call in self._calls:
                if call.has_work and call.key not in lanes:
                    lanes[call.key] = _Lane(self, call)
            self._changed.notify_all()
            if lanes or (self._calls and not self.is_closed):
                return True
            self._thread = None
            return False

    def take(self, lane: _Lane) -> Request | None:
        """The next request of a lane, from each of its calls in turn; None if there is none now."""
        with self.lock:
            if len(lane.layouts) > _MOST_LAYOUTS:
                return None
            if self.has_passes or not lane.owners:
                # So that its passes are full.
                self._wait_for_sole_call(
                    lambda call: call.given or call.has_none_now or not call.is_open
                )
            for place, call in enumerate(self._calls):
                if call.key == lane.key and call.has_work:
                    self._calls.append(self._calls.pop(place))
                    return lane.begin(call)
            return None

    def _deliver(self, lane: _Lane, done: Iterable[Filled]) -> None:
        with self.lock:
            for call in {call for item in done if (call := lane.end(item)) is not None}:
                call.notify()
            # If there are other calls, a slow reader's requests wait, and not the thread.
            self._wait_for_sole_call(lambda call: len(call.results) < _UNREAD)

    def _wait_for_sole_call(self, is_ready: Callable[[Call], Any]) -> None:
        if len(self._calls) == 1:
            (call,) = self._calls
            self._changed.wait_for(
                lambda: is_ready(call) or call.is_closed or self.is_closed or self._calls != [call]
            )

    def _fail(self, lane: _Lane, error: BaseException) -> None:
        """A pass that fails may be one call's fault, so calls that shared it go on apart."""
        with self.lock:
            calls = set(lane.owners.values()) or {c for c in self._calls if c.key == lane.key}
            for call in calls:
                call.lane = None
                if len(calls) > 1:
                    call.key = (call.key, id(call))
                    call.given.extendleft(reversed(call.in_flight))
                else:
                    call.error = error
                    call.given.clear()
                call.in_flight.clear()
                call.notify()


_started: WeakSet[SharedEngine] = WeakSet()


@atexit.register
def _end_threads() -> None:
    """Ends passes before Python ends their threads, which would abort the process, or leave callers
    waiting for them."""
    for engine in list(_started):
        engine.abandon()


class Call:
    """A caller's requests and their results: two bounded queues.

    given: requests that are not taken up yet; in_flight: those of the lane, in order. results:
    wait to be used. has_none_now: whether the caller last read documents that need no request.
    Everything is guarded by the engine's lock.
    """

    def __init__(self, engine: SharedEngine, config: DecodingConfig) -> None:
        self._engine = engine
        self._changed = threading.Condition(engine.lock)
        self._wake: Callable[[], None] | None = None
        self.config = config
        # All other settings are a matter of each request.
        self.key: Any = config.batch_size
        self.lane: _Lane | None = None
        self.given: deque[Request] = deque()
        self.in_flight: dict[Request, None] = {}
        self.results: deque[Filled] = deque()
        self.error: BaseException | None = None
        self.has_none_now = self.is_closed = self._no_more = False

    # --- the caller's side -----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True if more may be given."""
        return not (self._no_more or self.is_closed or self.error is not None)

    @property
    def has_room(self) -> bool:
        return self.is_open and len(self.given) < _AHEAD

    @property
    def is_busy(self) -> bool:
        """True if enough is waiting to be taken up."""
        return 2 * len(self.given) >= _AHEAD

    @property
    def is_done(self) -> bool:
        """True if there is nothing more to come."""
        return not (self.is_open or self.given or self.in_flight or self.results)

    def give(self, requests: Collection[Request]) -> None:
        """No requests say that there are none now. Raises ModelError where the engine is closed."""
        with self._engine.lock:
            if self._engine.is_closed:
                raise ModelError("the extractor was closed before it had read all documents")
            if self.is_open:
                self.given.extend(requests)
                self.has_none_now = not requests
            self._engine.notify()

    def end(self) -> None:
        """Says that nothing more will be given."""
        self._no_more = True
        self._engine.notify()

    def take(self, most: int) -> list[Filled]:
        """The next results. Raises what the model raised behind the last of them."""
        with self._engine.lock:
            results = [self.results.popleft() for _ in range(min(most, len(self.results)))]
            if results:
                self._engine.notify()
            elif self.error is not None:
                raise self.error
            return results

    def wait(self) -> None:
        """Waits until there are results, room for requests, or an end."""
        with self._engine.lock:
            self._changed.wait_for(self._is_ready)

    async def changed(self) -> None:
        """`wait` for a task."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)

        with self._engine.lock:
            if self._is_ready():
                return
            self._wake = wake
        await event.wait()

    def close(self) -> None:
        """Lets go of what is not done. Its room is free with the next pass."""
        self.is_closed = True
        self._engine.notify()
        with self._engine.lock:
            self._changed.notify_all()

    def _is_ready(self) -> bool:
        return bool(
            self.results
            or self.is_done
            or self.is_closed
            or self.error is not None
            or (self.is_open and not self.is_busy)
        )

    # --- the thread's side -----------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """True if a request may be taken."""
        has_room = len(self.results) < _UNREAD or self._engine.is_closed
        return bool(self.given) and has_room and not self.is_closed

    def notify(self) -> None:
        if self._wake is not None and self._is_ready():
            self._wake()
            self._wake = None
        self._changed.notify_all()


class _Lane:
    """Passes that calls share. owners: the call of every request in flight."""

    def __init__(self, engine: SharedEngine, call: Call) -> None:
        self.key = call.key
        self.owners: dict[Request, Call] = {}
        self.layouts: set[int] = set()
        self._cancelled: deque[Request] = deque()
        source = PausableRequests(partial(engine.take, self))
        self.passes: Iterator[list[Filled]] = passes(
            engine.model, source, call.config, cancelled=self._cancelled
        )

    def begin(self, call: Call) -> Request:
        """Takes up the next request of a call."""
        request = call.given.popleft()
        call.in_flight[request] = None
        call.lane, self.owners[request] = self, call
        self.layouts.add(id(request.layout))
        if call.is_open and not call.is_busy:
            call.notify()
        return request

    def end(self, item: Filled) -> Call | None:
        """Hands over a result; to nobody, if the call has been closed."""
        call = self.owners.pop(item[0], None)
        if call is not None:
            del call.in_flight[item[0]]
            call.results.append(item)
        return call

    def cancel(self, call: Call) -> None:
        for request in call.in_flight:
            del self.owners[request]
            self._cancelled.append(request)
