"""What follows from a request's head alone: which function it is for, whose token it shows, and what travels on.

Pure, so that a head that comes again on its connection is screened once. Hop-by-hop headers and our own tokens never
reach a function; Forwarded tells it who called.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import BadRequest, NotFound
from gateway.web.answers import names_of
from gateway.web.exchange import HOP_BY_HOP
from gateway.web.forwarded import forwarded
from gateway.web.heads import Head, Headers

#: By this the tokens of ours are known, which are not a function's to see.
TOKEN_PREFIX = b"smv_"

_FORWARDED = frozenset((b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"))
_INTERESTING = HOP_BY_HOP | _FORWARDED | {b"authorization", b"expect", b"host"}


class Screened(NamedTuple):
    """See the module."""

    namespace: str
    function: str
    #: The Authorization header when it holds a token of ours.
    authorization: bytes | None
    #: Those that travel on.
    headers: Headers


def screen(head: Head, peer: str) -> Screened:
    """`peer`: the address that dialled. Raises NotFound, BadRequest for a target that names no function."""
    namespace, function = _address(head.target)
    kept: Headers = []
    authorization: bytes | None = None
    host = named = b""
    via: dict[bytes, bytes] = {}
    for name, pair in zip(head.names, head.headers, strict=True):
        if name in _INTERESTING:
            value = pair[1]
            if name == b"host":
                host = value
            elif name == b"authorization":
                if _holds_our_token(value):
                    authorization = value
                    continue
            elif name in _FORWARDED:
                via[name] = value
            else:
                if name == b"connection":
                    named += b"," + value
                continue
        kept.append(pair)
    unwanted = names_of(named) if named else None
    if unwanted:
        kept = [pair for pair in kept if pair[0].lower() not in unwanted]
    # Added to one that came, which tells of the hops before (RFC 7239 4).
    kept.append((b"forwarded", forwarded(peer, host, via)))
    return Screened(namespace, function, authorization, kept)


def _address(target: bytes) -> tuple[str, str]:
    parts = target.partition(b"?")[0].split(b"/", 4)
    if len(parts) < 4 or not parts[3]:
        raise NotFound("a function's address is /fn/<namespace>/<function>/")
    try:
        return parts[2].decode("ascii"), parts[3].decode("ascii")
    except UnicodeDecodeError:
        raise BadRequest("namespace and function names are plain ASCII") from None


def _holds_our_token(authorization: bytes) -> bool:
    scheme, _, credentials = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and credentials.lstrip()[: len(TOKEN_PREFIX)].lower() == TOKEN_PREFIX
