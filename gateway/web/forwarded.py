"""The Forwarded header (RFC 7239): who called, under which name, and by which way as far as we are told."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

#: A host longer than this is not worth keeping for the next call.
_CACHED_HOST_BYTES_MAX = 255


def forwarded(peer: str, host: bytes, via: Mapping[bytes, bytes]) -> bytes:
    """The element of this hop, last and always true: the address that dialled us and the Host it asked for.

    Before it, when `via` (lower-case names) has X-Forwarded-* of a proxy in front of us and no Forwarded, one element
    that says the same in the standard's words.
    """
    ours = _element(peer, host) if len(host) <= _CACHED_HOST_BYTES_MAX else _element.__wrapped__(peer, host)
    if not via or b"forwarded" in via:
        return ours
    source = via.get(b"x-forwarded-for", b"").split(b",")[0].strip()
    proto = via.get(b"x-forwarded-proto", b"").strip()
    named = via.get(b"x-forwarded-host", b"").strip()
    parts = [b"for=" + _node(source)]
    if named:
        parts.append(b"host=" + _quoted(named))
    if proto.isalpha():
        parts.append(b"proto=" + proto.lower())
    return b";".join(parts) + b", " + ours


@lru_cache(maxsize=1024)
def _element(peer: str, host: bytes) -> bytes:
    parts = [b"for=" + _node(peer.encode())]
    if host:
        parts.append(b"host=" + _quoted(host))
    parts.append(b"proto=http")
    return b";".join(parts)


def _node(address: bytes) -> bytes:
    if not address:
        return b"unknown"
    if address.count(b":") > 1 and not address.startswith(b"["):
        address = b"[" + address + b"]"
    return address if address.replace(b".", b"").isalnum() else _quoted(address)


def _quoted(value: bytes) -> bytes:
    return b'"' + value.replace(b"\\", b"").replace(b'"', b"") + b'"'
