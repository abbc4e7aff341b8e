"""Fetches a file by HTTP from public addresses, within the limits of time and size.

Every address is checked after its name was resolved, and the connection goes to the very address
that was checked: a second look-up could give another. Redirects are checked in the same way.
Proxies of the environment are not used; behind one the address could not be checked.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import quote, urljoin, urlsplit

from phyla.media.addresses import is_public, resolve
from phyla.validation import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from urllib.parse import SplitResult

    from phyla.media.item import Item

_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_PIECE = 65_536
# What a URL may hold besides letters and digits; the rest is percent-encoded.
_SAFE = "%/:=&?~#+!$,;'@()*[]"


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left.

        Raises:
            TimeoutError: none are.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("out of time")
        return left


class _TimedReader(io.RawIOBase):
    """Reads a socket; no read waits beyond the deadline of the whole fetch.

    A socket's own timeout starts anew with each read, and a server that sends one byte now and then
    would never be given up.
    """

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._deadline.left())
        return self._sock.recv_into(buffer)


class _TimedSocket:
    """As much of a socket as http.client uses."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> BinaryIO:
        return io.BufferedReader(_TimedReader(self._sock, self._deadline))

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left())
        self._sock.sendall(data)

    def close(self) -> None:
        """Do nothing: http.client closes it when it has the header, and the body is still to come."""


class _Connection(http.client.HTTPConnection):
    """A connection that is already made, to an address that was checked."""

    def __init__(self, host: str, port: int, sock: _TimedSocket) -> None:
        super().__init__(host, port)
        self.sock = cast("Any", sock)

    def connect(self) -> None:
        raise http.client.NotConnected("the connection was closed")


def fetch(
    url: str,
    item: Item,
    *,
    lookup: Callable[[str, int, float], list[str]] = resolve,
    allowed: Callable[[str], bool] = is_public,
) -> bytes:
    """The body of a URL.

    Args:
        url: http or https.
        item: what it is for, and its limits.
        lookup: finds a host's addresses, from host, port and seconds.
        allowed: whether an address may be connected to.

    Raises:
        MediaError: fetching is off, the host or its address is not allowed, or the server does not
            give the file within the limits.
    """
    if not item.limits.http:
        raise item.error(
            f"fetching URLs is off; found {shown(url)}.",
            "Pass the bytes or a path, or allow it with MediaLimits(http=True).",
        )
    deadline = _Deadline(item.limits.http_seconds)
    for _ in range(_MOST_REDIRECTS + 1):
        parts = _checked(url, item)
        try:
            with _connected(parts, item, deadline, lookup, allowed) as connection:
                found = _get(connection, parts, item)
        except TimeoutError as error:
            raise item.error(
                f"fetching {shown(url)} takes longer than {item.limits.http_seconds:g} seconds.",
                "Download it first, or raise MediaLimits.http_seconds.",
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise item.error(f"{shown(url)} cannot be fetched: {reason}.", "Check it.") from error
        if isinstance(found, bytes):
            return found
        url = urljoin(url, found)
    raise item.error(
        f"{shown(url)} is redirected more than {_MOST_REDIRECTS} times.", "Pass its final URL."
    )


def _checked(url: str, item: Item) -> SplitResult:
    try:
        parts = urlsplit(quote(url, safe=_SAFE))
        host, port = parts.hostname, parts.port  # reading the port checks it
    except ValueError as error:
        raise item.error(f"{shown(url)} is no URL: {error}.", "Check it.") from error
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise item.error(f"{shown(url)} is no http or https URL.", "Check it.")
    if parts.username is not None or parts.password is not None:
        raise item.error("a URL with a user name is not fetched.", "Download it first.")
    hosts = item.limits.hosts
    if hosts is not None and host.rstrip(".") not in {name.lower().rstrip(".") for name in hosts}:
        raise item.error(
            f"the host {host!r} is not among those that may be fetched from.",
            "Add it to MediaLimits.hosts.",
        )
    return parts


@contextlib.contextmanager
def _connected(
    parts: SplitResult,
    item: Item,
    deadline: _Deadline,
    lookup: Callable[[str, int, float], list[str]],
    allowed: Callable[[str], bool],
) -> Iterator[_Connection]:
    assert parts.hostname is not None
    secure = parts.scheme == "https"
    host, port = parts.hostname, parts.port or (443 if secure else 80)
    addresses = lookup(host, port, deadline.left())
    # One that is forbidden is enough: a name with both kinds is made to get past such checks.
    if not addresses or not all(allowed(address) for address in addresses):
        raise item.error(
            f"the host {host!r} has no public address, and others are not fetched from.",
            "Download the file first, and pass its path.",
        )
    sock = _first_that_answers(addresses, port, deadline)
    try:
        if secure:
            sock.settimeout(deadline.left())
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        yield _Connection(host, port, _TimedSocket(sock, deadline))
    finally:
        sock.close()


def _first_that_answers(addresses: list[str], port: int, deadline: _Deadline) -> socket.socket:
    failure: OSError = OSError("no address")
    for address in addresses:
        try:
            return socket.create_connection((address, port), timeout=deadline.left())
        except TimeoutError:
            deadline.left()
            failure = OSError("its server does not answer")
        except OSError as error:
            failure = error
    raise failure


def _get(connection: _Connection, parts: SplitResult, item: Item) -> bytes | str:
    """The body, or where it is instead."""
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"User-Agent": "phyla", "Accept": "*/*", "Accept-Encoding": "identity"}
    connection.request("GET", target, headers={**headers, "Connection": "close"})
    response = connection.getresponse()
    location = response.getheader("Location")
    if response.status in _REDIRECTS and location:
        return location
    if response.status != 200:
        raise item.error(
            f"the server of {connection.host!r} answers {response.status} {response.reason}.",
            "Check the URL.",
        )
    encoding = response.getheader("Content-Encoding", "identity").lower()
    if encoding not in ("identity", ""):
        raise item.error(f"the server sends it encoded as {encoding!r}.", "Download it first.")
    return _body(response, item)


def _body(response: http.client.HTTPResponse, item: Item) -> bytes:
    item.check_bytes(response.length or 0)
    body = bytearray()
    # Content-Length may be absent or wrong, so the bytes are counted as they come.
    while piece := response.read1(_PIECE):
        body += piece
        item.check_bytes(len(body))
    if response.length:
        raise item.error("the connection ended before the file did.", "Try again.")
    return bytes(body)
