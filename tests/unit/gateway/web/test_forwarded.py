"""The Forwarded header says who called, whatever came with the request."""

from __future__ import annotations

import pytest

from gateway.web.forwarded import forwarded


@pytest.mark.parametrize(
    ("peer", "host", "via", "said"),
    [
        ("192.0.2.7", b"lab", {}, b'for=192.0.2.7;host="lab";proto=http'),
        ("2001:db8::1", b"lab:80", {}, b'for="[2001:db8::1]";host="lab:80";proto=http'),
        ("", b"", {}, b"for=unknown;proto=http"),
        ("1.1.1.1", b'a"b\\', {}, b'for=1.1.1.1;host="ab";proto=http'),
        ("1.1.1.1", b"x" * 300, {}, b'for=1.1.1.1;host="' + b"x" * 300 + b'";proto=http'),
        ("1.1.1.1", b"lab", {b"forwarded": b"for=9.9.9.9"}, b'for=1.1.1.1;host="lab";proto=http'),
        (
            "1.1.1.1",
            b"in",
            {b"x-forwarded-for": b"9.9.9.9, 8.8.8.8", b"x-forwarded-proto": b"HTTPS", b"x-forwarded-host": b"out"},
            b'for=9.9.9.9;host="out";proto=https, for=1.1.1.1;host="in";proto=http',
        ),
        ("1.1.1.1", b"", {b"x-forwarded-for": b"::1"}, b'for="[::1]", for=1.1.1.1;proto=http'),
        (
            "1.1.1.1",
            b"",
            {b"x-forwarded-for": b'a";for=b', b"x-forwarded-proto": b"x;y"},
            b'for="a;for=b", for=1.1.1.1;proto=http',
        ),
        ("1.1.1.1", b"", {b"x-forwarded-proto": b"https"}, b"for=unknown;proto=https, for=1.1.1.1;proto=http"),
    ],
)
def test_the_last_element_is_this_hop(peer: str, host: bytes, via: dict[bytes, bytes], said: bytes) -> None:
    assert forwarded(peer, host, via) == said
