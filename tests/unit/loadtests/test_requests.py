from __future__ import annotations

import httptools
import pytest

from loadtests.bench.requests import Address, ExpectedBytes, ExpectedJson, Target, post_json

TARGET = Target(Address("127.0.0.1", 81), "/fn/default/x", "secret")


def test_a_request_is_whole_and_carries_the_token() -> None:
    seen: dict[str, object] = {"headers": {}}

    class Reader:
        def on_url(self, url: bytes) -> None:
            seen["url"] = url

        def on_header(self, name: bytes, value: bytes) -> None:
            seen["headers"][name.lower()] = value  # type: ignore[index]

        def on_body(self, body: bytes) -> None:
            seen["body"] = body

        def on_message_complete(self) -> None:
            seen["whole"] = True

    httptools.HttpRequestParser(Reader()).feed_data(post_json(TARGET, {"a": 1}))
    assert seen["url"] == b"/fn/default/x"
    assert seen["body"] == b'{"a":1}'
    assert seen["whole"]
    headers = seen["headers"]
    assert isinstance(headers, dict)
    assert headers[b"authorization"] == b"Bearer secret"
    assert headers[b"host"] == b"127.0.0.1:81"


def test_json_may_be_spelled_in_any_way() -> None:
    expected = ExpectedJson({"a": 1})
    expected.feed(b'{ "a"')
    expected.feed(b": 1}")
    assert expected.is_right()
    assert expected.spelling == b'{ "a": 1}'


@pytest.mark.parametrize("body", [b'{"a": 2}', b"", b"not json", b"\xff"])
def test_other_json_is_wrong_and_leaves_nothing_for_the_next_answer(body: bytes) -> None:
    expected = ExpectedJson({"a": 1})
    expected.feed(body)
    assert not expected.is_right()
    expected.feed(b'{"a": 1}')
    assert expected.is_right()


@pytest.mark.parametrize("pieces", [[b"abc"], [b"a", b"bc"], [b"", b"ab", b"c"]])
def test_bytes_may_come_in_any_pieces(pieces: list[bytes]) -> None:
    expected = ExpectedBytes(b"abc")
    for _ in range(2):
        for piece in pieces:
            expected.feed(piece)
        assert expected.is_right()


@pytest.mark.parametrize("pieces", [[b"abd"], [b"ab"], [b"abcd"], [b"abc", b"d"], []])
def test_other_bytes_are_wrong_and_leave_nothing_for_the_next_answer(pieces: list[bytes]) -> None:
    expected = ExpectedBytes(b"abc")
    for piece in pieces:
        expected.feed(piece)
    assert not expected.is_right()
    expected.feed(b"abc")
    assert expected.is_right()
