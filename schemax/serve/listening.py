"""Checks the address where a server listens, and the origins that may call it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from schemax.base.messages import clipped
from schemax.errors import InputError


def bound(host: str, port: int) -> socket.socket:
    """Binds a socket that does not listen yet. Raises InputError if the address cannot be used."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        place = socket.socket(family)
    except OSError as error:
        raise InputError(f"cannot listen on {host}: {error.strerror}") from error
    try:
        if os.name == "posix":  # allows a port that was in use a moment ago
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(address)
    except OSError as error:
        place.close()
        reason = os.strerror(error.errno or 0)
        raise InputError(
            f"cannot listen on {host}:{port}: {reason}; name another --port, or 0 for a free one"
        ) from error
    return place


def check_reach(host: str, origins: Sequence[str], *, open_to_all: bool) -> None:
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
    way = "give --api-key or SCHEMAX_API_KEY, or say --without-key"
    if not _is_loopback(host):
        raise InputError(f"{host} can be reached from other machines: {way}")
    if "*" in origins:
        raise InputError(f"--cors '*' lets every page of the web call this server: {way}")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
