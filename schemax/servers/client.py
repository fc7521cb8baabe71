"""`Client`: asks a server over HTTP, with bounded concurrency, retries, and keys kept secret."""

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
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx2

from schemax.base.messages import clipped
from schemax.errors import ServerError

T = TypeVar("T")

TRIES = 8
"""The most tries of a request while the server is away or busy: over a minute in all."""

MOST_BYTES = 64_000_000
"""The most bytes of an answer. A larger answer fails its row."""

# Tries of a connection to a server that has never answered: the address is probably wrong.
_FIRST_TRIES = 3
# Tries of a request that the server fails at, or does not finish: the request may be at fault.
_FEW_TRIES = 3
_FIRST_DELAY, _LONGEST_DELAY, _LONGEST_WISH = 0.5, 30.0, 300.0
_CONNECT_SECONDS, _HEALTH_SECONDS = 10.0, 10.0
_BUSY = (429, 502, 503, 504)
_FAILING = (408, 409, 425, 500)
_LOCAL = ("localhost", "127.0.0.1", "::1")


class Client:
    """A client of a server's API for any thread; requests run in a thread of their own.

    url: of the API, `/v1` included.
    api_key: None takes $SCHEMAX_API_KEY, else $OPENAI_API_KEY, which is sent over https and to this
        machine alone.
    concurrency: the most requests in flight. timeout: seconds that the server may be silent.

    While the server is away or busy, a request is retried after a pause that doubles, or that the
    server asks for (Retry-After); only a few times if the server has never answered.

    usage: the tokens so far, by the server's own count and names.

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
        place = httpx2.URL(self.url) if url.startswith(("http://", "https://")) else None
        if place is None or not place.host:
            raise ValueError(
                f"{url!r} is not the address of a server; give one such as http://localhost:8000/v1"
            )
        if place.userinfo:
            raise ValueError("the address of a server holds no key; give it as api_key")
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self.concurrency = concurrency
        is_private = place.scheme == "https" or place.host in _LOCAL
        key = api_key or os.environ.get("SCHEMAX_API_KEY")
        key = key or (os.environ.get("OPENAI_API_KEY") if is_private else None)
        http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(timeout, connect=_CONNECT_SECONDS, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=concurrency),
        )
        self._http = http
        self._room = asyncio.Semaphore(concurrency)
        self._is_gone = self._has_answered = False
        self.usage = Counter[str]()
        loop = asyncio.new_event_loop()
        self._loop = loop
        thread = threading.Thread(target=_run, args=(loop,), name="schemax-requests", daemon=True)
        thread.start()
        self.close = weakref.finalize(self, _close, http, loop, thread)

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
                    found = await self._once(path, body)
                except _Failure as failure:
                    most = 1 if self._is_gone and failure.is_gone else failure.tries
                    if tries >= most:
                        raise await self._error(path, failure) from failure.__cause__
                    await asyncio.sleep(failure.delay(tries))
                else:
                    self._is_gone = False
                    self._count(found.get("usage"))
                    return found

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
            raise self._unanswered(error) from error
        except httpx2.DecodingError as error:
            raise _Failure("sent what cannot be read", _FEW_TRIES) from error
        status = response.status_code
        if status >= 300:
            said = f"answered {status}: {_said(data)}"
            if status in _BUSY:
                raise _Failure(said, TRIES, is_gone=True, wish=_wish(response))
            raise _Failure(said, _FEW_TRIES if status in _FAILING else 1, status=status)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            said = f"sent something other than JSON: {clipped(data.decode('utf-8', 'replace'))}"
            raise _Failure(said, _FEW_TRIES) from error
        if not isinstance(found, dict):
            raise _Failure("sent something other than a JSON object", _FEW_TRIES)
        return found

    def _unanswered(self, error: httpx2.TransportError) -> _Failure:
        said = f"does not answer ({clipped(str(error) or type(error).__name__)})"
        if self._has_answered or not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return _Failure(said, TRIES, is_gone=True)
        # Waiting for the connection took its time already.
        most = 1 if isinstance(error, httpx2.ConnectTimeout) else _FIRST_TRIES
        asked = "is the server running, and is this its address?"
        return _Failure(f"{said}; {asked}", most, is_gone=True)

    async def _error(self, path: str, failure: _Failure) -> ServerError:
        """The error of a request, which tells whether the request or the server was at fault."""
        gone = failure.is_gone
        if not gone and failure.tries > 1:  # ask whether the server answers at all
            try:
                await self._http.get(f"{self.url}/models", timeout=_HEALTH_SECONDS)
            except httpx2.HTTPError:
                gone = True
        self._is_gone = gone
        return ServerError(f"{self.url}{path} {failure}", is_gone=gone, status=failure.status)


class _Failure(Exception):
    """A failed try. tries: the most tries of the request. is_gone: True if not its own fault."""

    def __init__(
        self,
        said: str,
        tries: int,
        *,
        is_gone: bool = False,
        wish: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(said)
        self.tries, self.is_gone, self.wish, self.status = tries, is_gone, wish, status

    def delay(self, tries: int) -> float:
        """The seconds until the next try."""
        pause = min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** (tries - 1))
        pause *= random.uniform(0.5, 1)  # so that requests do not all return at once
        return pause if self.wish is None else max(pause, min(self.wish, _LONGEST_WISH))


def _wish(response: httpx2.Response) -> float | None:
    """The seconds that Retry-After asks for, as a number or as a date; None without."""
    wish = response.headers.get("Retry-After", "")
    try:
        return float(wish)
    except ValueError:
        pass
    try:
        return (parsedate_to_datetime(wish) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError):
        return None


async def _read(response: httpx2.Response) -> bytes:
    """Reads the body, `MOST_BYTES` uncompressed bytes at most. Raises _Failure."""
    data = bytearray()
    async for part in response.aiter_bytes():
        data += part
        if len(data) > MOST_BYTES:
            raise _Failure(f"answered with more than {MOST_BYTES:,} bytes", tries=1)
    return bytes(data)


def _said(data: bytes) -> str:
    """The message of an error in any usual form, else the beginning of the text."""
    try:
        found = json.loads(data)
        found = found.get("error", found)
        found = found.get("message", found) if isinstance(found, dict) else found
    except (ValueError, AttributeError, RecursionError):
        found = data.decode("utf-8", "replace")
    return clipped(str(found))


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
