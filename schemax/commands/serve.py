"""`schemax serve`: a model behind HTTP, for clients of OpenAI's protocol and for its own."""

from __future__ import annotations

import gc
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from schemax.commands import options
from schemax.commands.console import UsageError, listed, plain_warnings, say
from schemax.commands.option_groups import grouped, option
from schemax.commands.options import LoadingOptions
from schemax.commands.process import terminable
from schemax.errors import InputError
from schemax.messages import clipped

_AT_LEAST_ONE: dict[str, Any] = {"min": 1}


@dataclass(frozen=True, slots=True)
class Listening:
    """Who may come in"""

    host: str = option("Address to listen on.", default="127.0.0.1")
    port: int = option("Port; 0 takes a free one.", default=8000, min=0, max=65535)
    api_key: str | None = option(
        "What clients have to send as a bearer token. Default: $SCHEMAX_API_KEY.",
        show_default=False,
    )
    without_key: bool = option("Listen beyond this machine without a key.", default=False)
    cors: str = option(
        "Origins of pages whose scripts may call, by commas: https://shop.example. '*' is any.",
        default="",
        metavar="ORIGIN,...",
        show_default=False,
    )


@dataclass(frozen=True, slots=True)
class Appearance:
    """What they and the logs are told"""

    served_model_name: str | None = option(
        "Name of the model. Default: that of its folder.", show_default=False
    )
    log_format: Literal["text", "json"] = option(
        "A log line: text, or a JSON object on stdout.", default="text"
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much they may ask for"""

    max_body: int = option("Bytes of a request, or of a line.", default=8_000_000, **_AT_LEAST_ONE)
    max_stream: int = option(
        "Bytes of a request of many lines.", default=1_000_000_000, **_AT_LEAST_ONE
    )
    max_answer: int = option(
        "Bytes of an answer, or of rows that wait.", default=64_000_000, **_AT_LEAST_ONE
    )
    max_documents: int = option("Documents of a request.", default=1_000, **_AT_LEAST_ONE)
    max_fields: int = option("Fields of a schema.", default=256, **_AT_LEAST_ONE)
    max_queue: int = option("Documents of all requests.", default=2_000, **_AT_LEAST_ONE)
    timeout: float = option("Seconds of a request.", default=120.0, min=0.1)
    grace: int = option("Seconds that requests have to end after SIGTERM.", default=30, min=0)


@grouped
def serve(
    model: options.ModelArgument = None,
    *,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    loading: LoadingOptions,
    template: options.Template = None,
    decoding: options.Decoding = None,
    prompt: options.Prompt = None,
    listening: Listening,
    appearance: Appearance,
    bounds: Bounds,
) -> None:
    """Serves a model: /v1/chat/completions and /v1/responses for clients of OpenAI's structured
    outputs, /v1/extract for documents, /docs for all of it.

    Listens on this machine alone, unless told otherwise; other addresses require a key.
    """
    try:
        import uvicorn

        from schemax.serve.app import create_app
        from schemax.serve.limits import Limits
        from schemax.serve.logs import log_settings
    except ModuleNotFoundError as error:
        raise InputError(
            f"serving requires {error.name}; pip install '.[serve]' in a checkout of schemax"
        ) from None
    api_key = listening.api_key or os.environ.get("SCHEMAX_API_KEY") or None
    if api_key is None and not listening.without_key and not _is_loopback(listening.host):
        raise UsageError(
            f"{listening.host} can be reached from other machines: give --api-key or "
            "SCHEMAX_API_KEY, or say --without-key"
        )
    origins = _origins(listening.cors)
    if "*" in origins and api_key is None and not listening.without_key:
        raise UsageError(
            "--cors '*' lets every page of the web call this server: give --api-key or "
            "SCHEMAX_API_KEY, or say --without-key"
        )
    settings = options.checked_settings(None, template, decoding)
    with _bound(listening) as place:  # before a model is loaded
        with plain_warnings():
            extractor = options.load_extractor(model, device, dtype, **loading.named())
        if prompt is not None:
            named = {"template": template, "decoding": settings["decoding"]}
            extractor = extractor.with_prompt(prompt, **named)
        extractor.template = template or extractor.template
        extractor.decoding = settings["decoding"] or extractor.decoding
        limits = Limits(
            body_bytes=bounds.max_body,
            stream_bytes=bounds.max_stream,
            answer_bytes=bounds.max_answer,
            documents=bounds.max_documents,
            fields=bounds.max_fields,
            queue=bounds.max_queue,
            seconds=bounds.timeout,
        )
        name = appearance.served_model_name or Path(str(options.model_place(model))).name
        # Without a key, anybody's page could have a name of its own lead to this machine.
        hosts = ("localhost", "127.0.0.1", "[::1]", listening.host) if api_key is None else ("*",)
        app = create_app(
            extractor, name=name, api_key=api_key, limits=limits, hosts=hosts, origins=origins
        )
        # What is there now stays: searches for garbage need not look through it.
        gc.collect()
        gc.freeze()
        host = f"[{listening.host}]" if ":" in listening.host else listening.host
        say(f"serving {name} on http://{host}:{place.getsockname()[1]}; stop with Ctrl+C")
        config = uvicorn.Config(
            app,
            log_config=log_settings(appearance.log_format),
            timeout_graceful_shutdown=bounds.grace,
            server_header=False,
            timeout_keep_alive=75,  # longer than clients and proxies keep connections
        )
        # uvicorn raises the signal again when requests have ended.
        with terminable(), suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[place])


def _bound(listening: Listening) -> socket.socket:
    """A socket that has its address, and takes no one in yet. Raises UsageError if it cannot."""
    host, port = listening.host, listening.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        place = socket.socket(family)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}: {error.strerror}") from error
    try:
        if os.name == "posix":  # a port that was in use a moment ago
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(address)
    except OSError as error:
        place.close()
        reason = os.strerror(error.errno or 0)
        raise UsageError(
            f"cannot listen on {host}:{port}: {reason}; name another --port, or 0 for a free one"
        ) from error
    return place


def _origins(text: str) -> list[str]:
    """As browsers send them. Raises UsageError for what no browser sends."""
    found = listed(text)
    for origin in found:
        parts = urlsplit(origin)
        if origin != "*" and (not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}"):
            raise UsageError(
                f"--cors {clipped(repr(origin))}: an origin is scheme, host and port, without a "
                "slash at the end, such as https://shop.example"
            )
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
