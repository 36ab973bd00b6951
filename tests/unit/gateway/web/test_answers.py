"""Errors in their one shape, and a function's headers made safe to send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.errors import BadRequest, HandlerFailed, NoCapacity, TooLarge, Unauthorized
from gateway.web.answers import answer_lines, date_line, error_body, error_headers, header_lines, plain_error
from gateway.web.exchange import UnreadableAnswer

NOW = 784_111_777.5
DATE = b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"


def test_an_error_says_code_message_and_fault() -> None:
    assert json.loads(error_body(TooLarge("body: too large"))) == {
        "error": {"code": "too_large", "message": "body: too large", "fault": "caller"}
    }


def test_an_error_may_carry_a_detail() -> None:
    assert json.loads(error_body(HandlerFailed("x", detail={"type": "E"})))["error"]["detail"] == {"type": "E"}


def test_an_error_that_quotes_what_json_cannot_carry_is_still_told() -> None:
    error = HandlerFailed("bad \ud800 text", detail={"traceback": "\ud800"})
    assert json.loads(error_body(error))["error"]["message"] == "bad ? text"


def test_error_headers_say_whose_fault_and_when_to_come_back() -> None:
    assert dict(error_headers(NoCapacity("x", retry_after_s=1.2))) == {
        b"content-type": b"application/json",
        b"x-samovar-fault": b"platform",
        b"retry-after": b"2",
    }
    assert dict(error_headers(NoCapacity("x", retry_after_s=0.0)))[b"retry-after"] == b"1"
    assert b"x-samovar-fault" not in dict(error_headers(BadRequest("x")))
    assert dict(error_headers(Unauthorized("x")))[b"www-authenticate"] == b"Bearer"


def test_a_refusal_is_a_whole_answer_that_closes() -> None:
    head, _, body = plain_error(431, "too\r\nmuch", NOW).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert b"connection: close" in head
    assert b"content-length: %d" % len(body) in head
    assert json.loads(body)["error"]["message"] == "too\r\nmuch"


def test_order_repeats_and_case_of_headers_are_kept() -> None:
    head = [[b"Set-Cookie", b"a"], [b"x", b"1"], [b"Set-Cookie", b"b"]]
    assert answer_lines(head, NOW) == (b"Set-Cookie: a\r\nx: 1\r\nSet-Cookie: b\r\n" + DATE, None)


def test_hop_by_hop_headers_and_those_that_connection_names_do_not_go_out() -> None:
    head = [[b"Connection", b"x-a, Close"], [b"X-A", b"1"], [b"Transfer-Encoding", b"chunked"], [b"X-B", b"2"]]
    head += [[b"connection", b"x-b"], [b"Keep-Alive", b"1"], [b"Upgrade", b"h2"], [b"Trailer", b"x"], [b"X-C", b"3"]]
    assert answer_lines(head, NOW)[0] == b"X-C: 3\r\n" + DATE


def test_a_function_does_not_speak_for_the_platform() -> None:
    assert answer_lines([[b"X-Samovar-Fault", b"platform"], [b"x-samovar-start", b"hot"]], NOW)[0] == DATE


def test_a_functions_own_date_stands() -> None:
    assert answer_lines([[b"Date", b"then"]], NOW)[0] == b"Date: then\r\n"


def test_the_length_is_told_apart() -> None:
    assert answer_lines([[b"Content-Length", b"12"], [b"content-length", b"12"]], NOW) == (DATE, 12)


def test_no_number_of_names_makes_the_gateway_forget_what_they_mean() -> None:
    for number in range(3000):
        assert answer_lines([[b"x-%d" % number, b""], [b"te", b""]], NOW)[0] == b"x-%d: \r\n" % number + DATE
    long = b"x" * 10_000
    assert answer_lines([[long, b""]], NOW)[0] == long + b": \r\n" + DATE


def test_our_own_headers_as_lines() -> None:
    assert header_lines([(b"a", b"1"), (b"b", b"2")]) == b"a: 1\r\nb: 2\r\n"


@pytest.mark.parametrize(
    "pair",
    [
        [b"x", b"a\r\nset-cookie: b"],
        [b"x", b"a\nb"],
        [b"x", b"a\rb"],
        [b"x", b"a\0b"],
        [b"x\r\nset-cookie", b"b"],
        [b"x y", b"b"],
        [b"x:", b"b"],
        [b"", b"b"],
        ["x", b"b"],
        [b"x", "b"],
        [b"x", 1],
        [1, b"x"],
        [None, None],
        [[b"x"], b"y"],
        [b"x"],
        [b"x", b"y", b"z"],
        b"xy",
        5,
        None,
        [b"content-length", b"x"],
        [b"content-length", b"-1"],
        [b"content-length", b""],
        [b"content-length", b"9" * 30],
        [b"transfer-encoding", b"x\r\ny"],
        [b"connection", 5],
    ],
)
def test_what_could_split_an_answer_or_is_no_header_is_unreadable(pair: Any) -> None:
    with pytest.raises(UnreadableAnswer):
        answer_lines([[b"good", b"1"], pair], NOW)


def test_two_lengths_are_unreadable() -> None:
    with pytest.raises(UnreadableAnswer, match="both"):
        answer_lines([[b"content-length", b"1"], [b"content-length", b"2"]], NOW)


def test_the_date_follows_the_clock() -> None:
    assert date_line(NOW) == DATE
    assert date_line(NOW + 0.4) is date_line(NOW)
    assert date_line(NOW + 1).startswith(b"date: Sun, 06 Nov 1994 08:49:38")
