"""Addresses as agents are given them."""

from __future__ import annotations

import pytest

from runtime.gateway_link import BadAddress, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [("unix:/a/b:c", "/a/b:c"), ("tcp:host:80", ("host", 80)), ("tcp:[::1]:8080", ("::1", 8080))],
)
def test_good_addresses(text: str, address: object) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "unix:", "tcp:host", "tcp::80", "tcp:h:0", "tcp:h:70000", "http://x", "/path"])
def test_bad_addresses_are_named(text: str) -> None:
    with pytest.raises(BadAddress, match="neither"):
        parse_address(text)
