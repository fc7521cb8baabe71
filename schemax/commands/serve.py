"""`schemax serve`: serves a model over HTTP, to clients of OpenAI's protocol and to its own."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

from schemax.base.messages import say
from schemax.base.process import terminable
from schemax.commands import options
from schemax.commands.console import listed, plain_warnings
from schemax.commands.option_groups import Options, option, verb
from schemax.errors import InputError
from schemax.serve.listening import bound, check_reach


class Listening(Options):
    """Who may come in"""

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


class Appearance(Options):
    """What they and the logs are told"""

    served_model_name: str | None = option(show_default=False)
    """Name of the model. Default: that of its folder."""
    log_format: Literal["text", "json"] = "text"
    """A log line: text, or a JSON object on stdout."""


class Bounds(Options):
    """How much they may ask for"""

    max_body: int = option(default=8_000_000, min=1)
    """Bytes of a request, or of a line."""
    max_stream: int = option(default=1_000_000_000, min=1)
    """Bytes of a request of many lines."""
    max_answer: int = option(default=64_000_000, min=1)
    """Bytes of an answer, or of rows that wait."""
    max_documents: int = option(default=1_000, min=1)
    """Documents of a request."""
    max_fields: int = option(default=256, min=1)
    """Fields of a schema."""
    max_queue: int = option(default=2_000, min=1)
    """Documents of all requests."""
    timeout: float = option(default=120.0, min=0.1)
    """Seconds of a request."""
    grace: int = option(default=30, min=0)
    """Seconds that requests have to end after SIGTERM."""


class Start(options.ModelArgument, options.Loading, options.Prompt, without="format examples"):
    """Options"""


class Given(Bounds, Appearance, Listening, Start):
    """Options"""


@verb
def serve(given: Given) -> None:
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
    api_key = given.api_key or os.environ.get("SCHEMAX_API_KEY") or None
    origins = listed(given.cors)
    check_reach(given.host, origins, open_to_all=given.without_key or api_key is not None)
    settings = given.settings()
    with bound(given.host, given.port) as place:  # before a model is loaded
        with plain_warnings():
            extractor = given.extractor()
        if given.prompt is not None:
            named = {"template": given.template, "decoding": settings["decoding"]}
            extractor = extractor.with_prompt(given.prompt, **named)
        extractor.defaults = replace(
            extractor.defaults,
            template=given.template or extractor.defaults.template,
            decoding=settings["decoding"] or extractor.defaults.decoding,
        )
        limits = Limits(
            *(given.max_body, given.max_stream, given.max_answer, given.max_documents),
            fields=given.max_fields,
            queue=given.max_queue,
            seconds=given.timeout,
        )
        name = given.served_model_name or Path(str(options.model_place(given.model))).name
        # Without a key, any web page could reach this machine by DNS rebinding.
        hosts = ("localhost", "127.0.0.1", "[::1]", given.host) if api_key is None else ("*",)
        app = create_app(
            extractor, name=name, api_key=api_key, limits=limits, hosts=hosts, origins=origins
        )
        # Objects that exist now stay: garbage collection need not search them.
        gc.collect()
        gc.freeze()
        host = f"[{given.host}]" if ":" in given.host else given.host
        say(f"serving {name} on http://{host}:{place.getsockname()[1]}; stop with Ctrl+C")
        config = uvicorn.Config(
            app,
            log_config=log_settings(given.log_format),
            timeout_graceful_shutdown=given.grace,
            server_header=False,
            timeout_keep_alive=75,  # longer than clients and proxies keep connections
        )
        # uvicorn raises the signal again when requests have ended.
        with terminable(), suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[place])
