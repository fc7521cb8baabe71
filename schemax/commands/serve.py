"""`schemax serve`: serves a model over HTTP, to clients of OpenAI's protocol and to its own."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from schemax.base.messages import clipped, say
from schemax.base.options import option
from schemax.base.process import terminable
from schemax.commands import options
from schemax.commands.options import argument, listed, plain_warnings, verb
from schemax.errors import InputError
from schemax.extraction.schema import AttrSchema
from schemax.serve.limits import ServerLimits


class Args(
    ServerLimits,
    options.Cascade,
    options.Prompt,
    without="format examples ignore_extra schema_characters cache_bytes",
):
    """Options"""

    model: str | None = argument("MODEL", default=None)
    """Folder or Hugging Face Hub id. Default: $SCHEMAX_MODEL, else the embedded model."""

    """Access"""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = option(default=8000, min=0, max=65535)
    """Port; 0 takes a free one."""
    api_key: str | None = option(show_default=False)
    """The bearer token that clients have to send. Default: $SCHEMAX_API_KEY."""
    without_key: bool = False
    """Listen beyond this machine without a key."""
    cors: str = option("ORIGIN,...", default="", show_default=False)
    """Origins of pages whose scripts may call, by commas: https://shop.example. '*' is any."""

    """Names and logs"""

    served_model_name: str | None = option(show_default=False)
    """Name of the model. Default: that of its folder."""
    log_format: Literal["text", "json"] = "text"
    """A log line: text, or a JSON object on stdout."""

    """Limits"""

    grace: int = option(default=30, min=0)
    """Seconds that requests have to end after SIGTERM."""


class _Probe(AttrSchema):
    """A schema that every model can read."""

    value: str | None


@verb
def serve(args: Args) -> None:
    """Serves a model: /v1/chat/completions and /v1/responses for clients of OpenAI's structured
    outputs, /v1/extract for documents, /docs for all of it.

    Listens on this machine alone, unless told otherwise; other addresses require a key.
    """
    try:
        import uvicorn

        from schemax.serve.app import create_app
        from schemax.serve.monitoring import log_settings
    except ModuleNotFoundError as error:
        raise InputError(
            f"serving requires {error.name}; pip install '.[serve]' in a checkout of schemax"
        ) from None
    api_key = args.api_key or os.environ.get("SCHEMAX_API_KEY") or None
    origins = listed(args.cors)
    _check_reach(args.host, origins, open_to_all=args.without_key or api_key is not None)
    settings = args.settings()
    with _bound(args.host, args.port) as listener:  # before a model is loaded
        with plain_warnings():
            extractor = args.extractor()
        if args.prompt is not None:
            named = {"template": args.template, "decoding": settings["decoding"]}
            extractor = extractor.with_prompt(args.prompt, **named)
        extractor.defaults = replace(
            extractor.defaults,
            template=args.template or extractor.defaults.template,
            decoding=settings["decoding"] or extractor.defaults.decoding,
        )
        extractor.stream((), _Probe)  # refuses now what every request would be refused for
        name = args.served_model_name or Path(str(options.model_place(args.model))).name
        # Without a key, any web page could reach this machine by DNS rebinding.
        hosts = ("localhost", "127.0.0.1", "[::1]", args.host) if api_key is None else ("*",)
        app = create_app(
            extractor, name=name, api_key=api_key, limits=args, hosts=hosts, origins=origins
        )
        # Objects that exist now stay: garbage collection need not search them.
        gc.collect()
        gc.freeze()
        host = f"[{args.host}]" if ":" in args.host else args.host
        say(f"serving {name} on http://{host}:{listener.getsockname()[1]}; stop with Ctrl+C")
        config = uvicorn.Config(
            app,
            log_config=log_settings(args.log_format),
            timeout_graceful_shutdown=args.grace,
            server_header=False,
            timeout_keep_alive=75,  # longer than clients and proxies keep connections
        )
        # uvicorn raises the signal again when requests have ended.
        with terminable(), suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


def _bound(host: str, port: int) -> socket.socket:
    """Binds a socket that does not listen yet. Raises InputError if the address cannot be used."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = addresses[0]
        listener = socket.socket(family)
    except OSError as error:
        raise InputError(f"cannot listen on {host}: {error.strerror}") from error
    try:
        if os.name == "posix":  # allows a port that was in use a moment ago
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno or 0)
        raise InputError(
            f"cannot listen on {host}:{port}: {reason}; name another --port, or 0 for a free one"
        ) from error
    return listener


def _check_reach(host: str, origins: Sequence[str], *, open_to_all: bool) -> None:
    """Raises InputError for addresses and origins that require a key, and for malformed origins.

    open_to_all: True if there is a key, or the user wants none.
    """
    for origin in origins:
        parts = urlsplit(origin)
        if origin != "*" and (not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}"):
            raise InputError(
                f"--cors {clipped(repr(origin))}: an origin is scheme, host and port, without a "
                "slash at the end, such as https://shop.example"
            )
    if open_to_all:
        return
    remedy = "give --api-key or SCHEMAX_API_KEY, or say --without-key"
    if not _is_loopback(host):
        raise InputError(f"{host} can be reached from other machines: {remedy}")
    if "*" in origins:
        raise InputError(f"--cors '*' lets every page of the web call this server: {remedy}")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
