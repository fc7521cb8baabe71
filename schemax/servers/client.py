"""`Client`: asks a server over HTTP, with bounded concurrency and retries."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import weakref
from collections import Counter
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx2

from schemax.base.messages import clipped
from schemax.errors import Cause, ServerError

T = TypeVar("T")

TRIES = 8
"""The most tries of a request while the server is away or busy: over a minute in all."""

MOST_BYTES = 64_000_000
"""The most bytes of an answer. A larger answer fails its row."""

# Tries of a request that may be at fault itself: of its address, if the server never answered, or
# of its content, if the server fails.
_FEW_TRIES = 3
_FIRST_DELAY, _LONGEST_DELAY, _LONGEST_WAIT = 0.5, 30.0, 300.0
_CONNECT_SECONDS, _HEALTH_SECONDS = 10.0, 10.0
_BUSY = (429, 502, 503, 504)
_FAILING = (408, 409, 425, 500)
_LOCAL = ("localhost", "127.0.0.1", "::1")


class Client:
    """A client of a server's API for any thread; requests run in a thread of their own.

    url: of the API, `/v1` included.
    api_key: None takes $SCHEMAX_API_KEY, else $OPENAI_API_KEY, which is sent over https and to this
        machine alone.
    concurrency: the most requests in flight.
    timeout: seconds that the server may be silent.
    usage: the tokens so far, by the server's own count and names.

    While the server is away or busy, a request is retried after a pause that doubles, or that the
    server asks for (Retry-After); only a few times if the server has never answered.

    Raises ValueError for a malformed address.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        concurrency: int = 32,
        timeout: float = 600.0,
    ) -> None:
        self.url = url.rstrip("/")
        address = httpx2.URL(self.url) if url.startswith(("http://", "https://")) else None
        if address is None or not address.host:
            raise ValueError(
                f"{url!r} is not the address of a server; give one such as http://localhost:8000/v1"
            )
        if address.userinfo:
            raise ValueError("the address of a server must not hold a key; give it as api_key")
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self.concurrency = concurrency
        is_private = address.scheme == "https" or address.host in _LOCAL
        key = api_key or os.environ.get("SCHEMAX_API_KEY")
        key = key or (os.environ.get("OPENAI_API_KEY") if is_private else None)
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(timeout, connect=_CONNECT_SECONDS, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=concurrency),
        )
        self._room = asyncio.Semaphore(concurrency)
        self._is_gone = self._has_answered = False
        self.usage = Counter[str]()
        self._loop = loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(loop,), name="schemax-requests", daemon=True)
        thread.start()
        self.close = weakref.finalize(self, _close, self._http, loop, thread)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts requests in the client's thread; returns the future of their result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Calls `ask` from outside the client's thread."""
        return self.start(self.ask(path, body)).result()

    async def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Gets a path of the API, or posts a body there, and returns the answer.

        Raises ServerError once all tries have failed.
        """
        async with self._room:
            tries = 0
            while True:
                tries += 1
                try:
                    answer = await self._once(path, body)
                except _Failure as failure:
                    most = 1 if self._is_gone and failure.is_gone else failure.tries
                    if tries >= most:
                        raise await self._error(path, failure) from failure.__cause__
                    await asyncio.sleep(failure.delay(tries))
                else:
                    self._is_gone = False
                    self._count(answer.get("usage"))
                    return answer

    def _count(self, usage: Any) -> None:
        for name, count in usage.items() if isinstance(usage, dict) else ():
            if isinstance(count, int):
                self.usage[name] += count

    async def _once(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Makes a single try. Raises _Failure."""
        try:
            method = "GET" if body is None else "POST"
            async with self._http.stream(method, f"{self.url}{path}", json=body) as response:
                self._has_answered = True
                data = await _read(response)
        except httpx2.ReadTimeout as error:
            raise _Failure("did not answer in time", tries=2) from error
        except httpx2.TransportError as error:
            raise self._failure_without_answer(error) from error
        except httpx2.DecodingError as error:
            raise _Failure("sent an answer that cannot be decoded", _FEW_TRIES) from error
        status = response.status_code
        if status >= 300:
            reason = f"answered {status}: {_error_message(data)}"
            if status in _BUSY:
                raise _Failure(reason, TRIES, is_gone=True, wait=_retry_after(response))
            raise _Failure(reason, _FEW_TRIES if status in _FAILING else 1, status=status)
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError) as error:
            reason = f"sent something other than JSON: {clipped(data.decode('utf-8', 'replace'))}"
            raise _Failure(reason, _FEW_TRIES) from error
        if not isinstance(answer, dict):
            raise _Failure("sent something other than a JSON object", _FEW_TRIES)
        return answer

    def _failure_without_answer(self, error: httpx2.TransportError) -> _Failure:
        reason = f"does not answer ({clipped(str(error) or type(error).__name__)})"
        if self._has_answered or not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return _Failure(reason, TRIES, is_gone=True)
        # Waiting for the connection took its time already.
        most = 1 if isinstance(error, httpx2.ConnectTimeout) else _FEW_TRIES
        question = "is the server running, and is this its address?"
        return _Failure(f"{reason}; {question}", most, is_gone=True)

    async def _error(self, path: str, failure: _Failure) -> ServerError:
        """The error of a request. `is_gone` is False if the request itself was at fault."""
        gone = failure.is_gone
        if not gone and failure.tries > 1:  # ask whether the server answers at all
            try:
                await self._http.get(f"{self.url}/models", timeout=_HEALTH_SECONDS)
            except httpx2.HTTPError:
                gone = True
        self._is_gone = gone
        cause: Cause | None = "server" if gone else None
        return ServerError(f"{self.url}{path} {failure}", cause=cause, status=failure.status)


class _Failure(Exception):
    """A failed try.

    tries: the most tries of the request.
    is_gone: True if the request is not at fault.
    wait: the seconds that the server asks for.
    """

    def __init__(
        self,
        reason: str,
        tries: int,
        *,
        is_gone: bool = False,
        wait: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.tries, self.is_gone, self.wait, self.status = tries, is_gone, wait, status

    def delay(self, tries: int) -> float:
        """The seconds until the next try."""
        pause = min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** (tries - 1))
        pause *= random.uniform(0.5, 1)  # so that requests do not all return at once
        return pause if self.wait is None else max(pause, min(self.wait, _LONGEST_WAIT))


def _retry_after(response: httpx2.Response) -> float | None:
    """The seconds that Retry-After asks for, as a number or as a date; None without."""
    value = response.headers.get("Retry-After", "")
    with suppress(ValueError):
        return float(value)
    with suppress(TypeError, ValueError):
        return (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
    return None


async def _read(response: httpx2.Response) -> bytes:
    """Reads the body, `MOST_BYTES` uncompressed bytes at most. Raises _Failure."""
    data = bytearray()
    async for part in response.aiter_bytes():
        data += part
        if len(data) > MOST_BYTES:
            raise _Failure(f"answered with more than {MOST_BYTES:,} bytes", tries=1)
    return bytes(data)


def _error_message(data: bytes) -> str:
    """The message of an error in any usual form, else the beginning of the text."""
    try:
        answer = json.loads(data)
        error = answer.get("error", answer)
        message = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError, RecursionError):
        message = data.decode("utf-8", "replace")
    return clipped(str(message))


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _close(
    http: httpx2.AsyncClient, loop: asyncio.AbstractEventLoop, thread: threading.Thread
) -> None:
    async def end() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await http.aclose()
        loop.call_soon(loop.stop)

    asyncio.run_coroutine_threadsafe(end(), loop)
    if thread is not threading.current_thread():  # which may have dropped the last reference
        thread.join()
