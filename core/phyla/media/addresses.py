"""Which internet addresses may be fetched from: public ones. Knows no protocol above IP.

A server that fetches what its callers name could otherwise be sent to services that trust their own
network (cloud metadata above all).
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Public by their numbers, in some versions of Python at least, but answered by a cloud's own machines.
_METADATA = tuple(ipaddress.IPv4Network(text) for text in ("168.63.129.16/32", "192.0.0.0/24"))
# They carry an IPv4 address inside, which a gateway on the way may follow.
_TUNNELS = tuple(
    ipaddress.IPv6Network(network)
    for network in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "2001::/32", "2002::/16")
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an address belongs to the open internet.

    Loopback, private, link-local, multicast and reserved ones do not, nor the kinds that hide
    another address inside.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return _is_public(found)


def _is_public(found: Address) -> bool:
    if isinstance(found, ipaddress.IPv6Address):
        if found.scope_id or any(found in network for network in _TUNNELS):
            return False
        if found in _NAT64:  # what a network without IPv4 makes of every IPv4 address
            return _is_public(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
        if found.is_site_local:
            return False
    return (
        found.is_global
        and not found.is_multicast
        and not found.is_reserved
        and not found.is_private
        and not found.is_loopback
        and not found.is_link_local
        and not found.is_unspecified
        and not any(found in network for network in _METADATA)
    )


def resolve(host: str, port: int, seconds: float) -> list[str]:
    """The addresses of a host, the preferred first.

    Raises:
        OSError: it has none, or the answer takes too long.
    """
    answers: list[list[str]] = []
    failures: list[Exception] = []

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers.append([str(entry[4][0]) for entry in found])
        except (OSError, UnicodeError) as error:
            failures.append(error)

    # The system's resolver knows no deadline, so it is left behind when it takes too long.
    if seconds > 0:
        _within(look_up, seconds)
    if answers:
        return list(dict.fromkeys(answers[0]))
    raise OSError(str(failures[0]) if failures else "its address was not found in time")


def _within(work: Callable[[], None], seconds: float) -> None:
    thread = threading.Thread(target=work, name="phyla-resolve", daemon=True)
    thread.start()
    thread.join(seconds)
