"""The one rule for URLs that we open on somebody's behalf: http or https, and no private address unless allowed.

A host's name is resolved once and the connection goes to the addresses that were checked, so a name that answers
differently a moment later gains nothing. Redirects are followed by hand, each checked as if it were the first.
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from infra.errors import Forbidden, InvalidRequest

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Lookup = Callable[[str], Awaitable[tuple[str, ...]]]
"""Finds a host's addresses, as text. Raises OSError when there are none."""

MAX_REDIRECTS = 10
MOST_URL_CHARS = 8192
"""Signed addresses have some hundreds; to look at one of many MiB takes a second."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_SITE_LOCAL = ipaddress.IPv6Network("fec0::/10")
"""Private addresses of old, which Python takes for public ones."""


async def system_lookup(host: str) -> tuple[str, ...]:
    """Ask the system's resolver, in its thread."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a part of it is empty or too long
        raise socket.gaierror(socket.EAI_NONAME, f"{host} is no name of a host") from error
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True, slots=True)
class Egress:
    """What may be connected to: everything, or the public internet with `allowed_networks` added."""

    allow_private: bool = False
    allowed_networks: tuple[Network, ...] = ()
    lookup: Lookup = system_lookup

    def check_url(self, url: str | URL) -> URL:
        """The parsed URL, if its scheme and, where it is one, its literal address are allowed.

        Raises:
            InvalidRequest: not http or https, no host, or a name and password in it.
            Forbidden: a private address.
        """
        parsed = parse_url(url) if isinstance(url, str) else url
        try:
            host = parsed.raw_host if parsed.host else None
        except ValueError:  # it is IDNA of nothing
            raise InvalidRequest("this is not a URL", param="url") from None
        if parsed.scheme not in ("http", "https") or not host:
            raise InvalidRequest("only http:// and https:// URLs with a host are opened", param="url")
        if parsed.user is not None or parsed.password is not None:
            raise InvalidRequest("a URL shows in logs: give no name and password in it", param="url")
        literal = _address(host)
        if literal is not None:
            self.check_address(host, literal)
        return parsed

    def check_address(self, host: str, address: Address) -> None:
        """Refuse an address that is not of the public internet, nor allowed.

        Raises:
            Forbidden: it is private, loopback, link-local, multicast or reserved, in whatever notation.
        """
        inner = _embedded(address)
        allowed = any(inner in network for network in self.allowed_networks if network.version == inner.version)
        public = inner.is_global and not inner.is_multicast and not inner.is_reserved and inner not in _SITE_LOCAL
        if self.allow_private or allowed or public:
            return
        raise Forbidden(
            f"{host} is at {address}, which is no public address: such addresses are not opened for a request",
            param="url",
        )

    @asynccontextmanager
    async def session(self, *, connect_s: float = 30.0, read_s: float = 60.0) -> AsyncIterator[ClientSession]:
        """An HTTP client that connects to checked addresses only; `read_s` bounds one wait for bytes, not the whole.

        It has no proxy and keeps no cookies. Use `fetch` with it: redirects that aiohttp follows are not checked.
        """
        connector = TCPConnector(resolver=_CheckedResolver(self), use_dns_cache=False, limit=16)
        timeout = ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s, sock_read=read_s)
        async with ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
            yield session

    @asynccontextmanager
    async def fetch(
        self, session: ClientSession, url: str, *, headers: dict[str, str], bearer: str | None = None
    ) -> AsyncIterator[ClientResponse]:
        """GET `url`, redirects followed; `bearer` goes to the first URL's origin only.

        Raises:
            InvalidRequest, Forbidden: the URL, or one it redirects to, is not allowed.
            aiohttp.ClientError: the connection failed.
        """
        target = self.check_url(url)
        first = target.origin()
        for _ in range(MAX_REDIRECTS):
            sent = dict(headers)
            if bearer is not None and target.origin() == first:
                sent["Authorization"] = f"Bearer {bearer}"
            async with session.get(target, headers=sent, allow_redirects=False) as response:
                location = response.headers.get("Location")
                if response.status not in (301, 302, 303, 307, 308) or location is None:
                    yield response
                    return
            target = self._redirected(target, location)
        raise InvalidRequest(f"{first} redirects more than {MAX_REDIRECTS} times: give the final URL", param="url")

    def _redirected(self, target: URL, location: str) -> URL:
        try:
            joined = target.join(URL(location))
        except ValueError:
            raise InvalidRequest(f"{target.origin()} redirects to something that is no URL", param="url") from None
        if target.scheme == "https" and joined.scheme == "http":
            raise Forbidden(f"{target.origin()} redirects from https to http: give an https URL", param="url")
        return self.check_url(joined)


def parse_url(text: str) -> URL:
    """The URL, absolute or not.

    Raises:
        InvalidRequest: it is none, or longer than any.
    """
    if len(text) > MOST_URL_CHARS:
        raise InvalidRequest(f"this is not a URL: {MOST_URL_CHARS} characters are the most", param="url")
    try:
        return URL(text)
    except ValueError:
        raise InvalidRequest("this is not a URL", param="url") from None


class _CheckedResolver(AbstractResolver):
    """Resolves for aiohttp, which then connects to exactly what is returned here."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Every address of `host`; one that is not allowed refuses the host whole."""
        results: list[ResolveResult] = []
        for text in await self._egress.lookup(host):
            address = ipaddress.ip_address(text)
            self._egress.check_address(host, address)
            of = socket.AF_INET if address.version == 4 else socket.AF_INET6
            if family in (socket.AF_UNSPEC, of):
                results.append(
                    ResolveResult(hostname=host, host=text, port=port, family=of, proto=0, flags=socket.AI_NUMERICHOST)
                )
        if not results:
            raise socket.gaierror(socket.EAI_NONAME, f"{host} has no address")
        return results

    async def close(self) -> None:
        """Nothing is held."""


def _address(host: str) -> Address | None:
    """The address that `host` is, also in the old notations (`127.1`, `0x7f000001`) that a connect understands."""
    try:
        return ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _embedded(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, where it is a mapped, 6to4 or NAT64 one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
