from __future__ import annotations

import functools
import io
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from phyla.errors import MediaError
from phyla.media import MediaLimits, http, open_image
from phyla.media.addresses import is_public, resolve
from phyla.media.item import Item

BODY = bytes(range(256)) * 400
FOREVER = "/forever"


class Handler(BaseHTTPRequestHandler):
    """Answers by the path that is asked for."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def answer(self, status=200, body=b"", length=None, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        server = self.server
        assert isinstance(server, Server)
        server.asked.append((self.path, self.headers["Host"]))
        name, _, rest = self.path.partition("?")
        match name:
            case "/good" | "/a%20b":
                self.answer(body=BODY, length=len(BODY))
            case "/no-length":
                self.answer(body=BODY)
            case "/chunked":
                self.protocol_version = "HTTP/1.1"
                pieces = [BODY[i : i + 1000] for i in range(0, len(BODY), 1000)] + [b""]
                body = b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in pieces)
                self.answer(body=body, Transfer_Encoding="chunked")
            case "/short":
                self.answer(body=BODY, length=len(BODY) + 5)
            case "/large":
                self.answer(length=10**12)
            case "/zip":
                self.answer(body=b"x", length=1, Content_Encoding="gzip")
            case "/missing":
                self.answer(404, length=0)
            case "/to":
                self.answer(302, Location=rest)
            case "/loop":
                self.answer(301, Location="/loop")
            case "/nowhere":
                self.answer(302)
            case "/silent":
                server.over.wait()
            case "/endless":
                self.answer()
                while not server.over.is_set():
                    self.wfile.write(bytes(1000))
            case "/endless-header":
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                while not server.over.is_set():
                    self.wfile.write(b"a")
            case "/drip":
                self.answer(length=10**6)
                while not server.over.wait(0.01):
                    self.wfile.write(b"a")
            case "/junk":
                self.wfile.write(b"\0\1\2 junk\r\n\r\n")
            case _:
                self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str]] = []
        self.over = threading.Event()

    def handle_error(self, request, client_address):
        pass  # the client has hung up, as it should

    def url(self, path, host="example.org"):
        return f"http://{host}:{self.server_port}{path}"


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


def here(host, port, seconds):
    """A resolver for which every host is this machine."""
    return ["127.0.0.1"]


def get(url, limits=None, lookup=here, allowed=lambda address: True):
    limits = limits or MediaLimits(http=True)
    return http.fetch(url, Item("image", 3, limits), lookup=lookup, allowed=allowed)


@pytest.mark.parametrize("path", ["/good", "/good?a=b#c", "/no-length", "/chunked", "/a b"])
def test_a_body_is_fetched(server, path):
    assert get(server.url(path)) == BODY
    assert server.asked[0][1] == f"example.org:{server.server_port}"


def test_nothing_is_fetched_unless_allowed(server):
    with pytest.raises(MediaError, match=r"MediaLimits\(http=True\)"):
        get(server.url("/good"), MediaLimits())
    with pytest.raises(MediaError, match="hosts") as caught:
        get(server.url("/good"), MediaLimits(http=True, hosts=("elsewhere.org", "org")))
    assert caught.value.index == 3
    assert not server.asked
    assert get(server.url("/good"), MediaLimits(http=True, hosts=("Example.org",))) == BODY


def test_an_address_that_is_not_public_is_never_connected_to(server):
    with pytest.raises(MediaError, match="no public address"):
        get(server.url("/good"), allowed=is_public)
    # One bad address among good ones is enough.
    with pytest.raises(MediaError, match="no public address"):
        get(
            server.url("/good"),
            lookup=lambda *_: ["93.184.216.34", "127.0.0.1"],
            allowed=is_public,
        )
    for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "0.0.0.0"):
        with pytest.raises(MediaError):
            get(server.url("/good", host), lookup=resolve, allowed=is_public)
    assert not server.asked


def test_a_redirect_is_checked_like_the_first_url(server):
    addresses = {"example.org": "127.0.0.1", "evil.org": "10.0.0.1"}
    looked_up = []

    def lookup(host, port, seconds):
        looked_up.append(host)
        return [addresses[host]]

    def allowed(address):
        return address == "127.0.0.1"

    good = server.url("/good")
    assert get(server.url(f"/to?{good}"), lookup=lookup, allowed=allowed) == BODY
    # Once for each hop: a name that is looked up again may have moved.
    assert looked_up == ["example.org"] * 2
    assert get(server.url("/to?/good"), lookup=lookup, allowed=allowed) == BODY
    with pytest.raises(MediaError, match=r"evil\.org"):
        get(server.url("/to?http://evil.org/"), lookup=lookup, allowed=allowed)
    for target in ("file:///etc/passwd", "ftp://example.org/", "gopher://example.org"):
        with pytest.raises(MediaError, match="no http or https URL"):
            get(server.url(f"/to?{target}"), lookup=lookup, allowed=allowed)
    hosts = MediaLimits(http=True, hosts=("example.org",))
    with pytest.raises(MediaError, match="hosts"):
        get(server.url("/to?http://evil.org/"), hosts, lookup, allowed)


def test_redirects_are_counted(server):
    with pytest.raises(MediaError, match="redirected more than 5 times"):
        get(server.url("/loop"))
    assert len(server.asked) == 6


@pytest.mark.parametrize("path", ["/good", "/no-length", "/chunked", "/large", "/endless"])
def test_the_size_is_limited_whatever_the_header_says(server, path):
    with pytest.raises(MediaError, match="max_bytes"):
        get(server.url(path), MediaLimits(http=True, max_bytes=len(BODY) - 1))


@pytest.mark.parametrize("path", ["/silent", "/endless", "/drip", "/endless-header"])
def test_a_server_that_takes_for_ever_is_given_up(server, path):
    with pytest.raises(MediaError):
        get(server.url(path), MediaLimits(http=True, http_seconds=0.3))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/missing", "404"),
        ("/nowhere", "302"),
        ("/short", "ended before"),
        ("/zip", "gzip"),
        ("/junk", "cannot be fetched"),
        ("/hang-up", "cannot be fetched"),
    ],
)
def test_a_server_that_gives_no_file_is_an_error(server, path, words):
    with pytest.raises(MediaError, match=words) as caught:
        get(server.url(path))
    assert caught.value.index == 3
    assert caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///path",
        "http://example.org:99999/",
        "http://example.org:0/",
        "http://[::1/",
        "http://user:secret@example.org/",
        "http://exa mple.org/",
        "http://example.org\r\nHost: x/",
        "https://",
    ],
)
def test_what_is_no_url_is_refused(url):
    with pytest.raises(MediaError):
        get(url, lookup=lambda *_: [])


def test_a_host_without_an_address_is_an_error():
    def nothing(host, port, seconds):
        raise OSError("unknown name")

    with pytest.raises(MediaError, match="unknown name"):
        get("http://example.org/", lookup=nothing)
    with pytest.raises(OSError, match="in time"):
        resolve("localhost", 80, -1)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(MediaError, match="cannot be fetched"):
            get(f"http://example.org:{unused.getsockname()[1]}/")


def test_proxies_of_the_environment_are_not_used(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert get(server.url("/good")) == BODY


def test_a_secure_connection_checks_the_certificate(server):
    with pytest.raises(MediaError, match="cannot be fetched"):
        get(server.url("/good").replace("http:", "https:"))


def test_an_image_may_come_from_a_url(server, monkeypatch):
    import PIL.Image

    file = io.BytesIO()
    PIL.Image.new("RGB", (3, 2), "red").save(file, "PNG")
    monkeypatch.setattr(f"{__name__}.BODY", file.getvalue())
    fetch = functools.partial(http.fetch, lookup=here, allowed=lambda address: True)
    monkeypatch.setattr(http, "fetch", fetch)
    opened = open_image(server.url("/good"), limits=MediaLimits(http=True))
    assert opened.size == (3, 2)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "192.168.1.1", "0.0.0.0"),
        *("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1"),
        *("240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "203.0.113.5"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "ff02::1", "fec0::1"),
        *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"),
        *("2001:0:1::", "2001:db8::1", "::ffff:0:127.0.0.1", "100::1", "not an address", ""),
    ],
)
def test_addresses_of_no_public_network_are_refused(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "2a00:1450:4001::", "64:ff9b::808:808"],
)
def test_public_addresses_are_allowed(address):
    assert is_public(address)
