"""How an answer is put on the wire, for every kind of request and status."""

from __future__ import annotations

import pytest

from gateway.web.exchange import Exchange, has_no_body, status_line
from gateway.web.heads import Head


class Connection:
    def __init__(self) -> None:
        self.sent = b""
        self.done = self.aborted = False
        self.writable = True
        self.held = False

    def send(self, data: bytes) -> bool:
        self.sent += data
        return self.writable

    def exchange_done(self, exchange: Exchange) -> None:
        self.done = True

    def abort(self) -> None:
        self.aborted = True

    def hold_reading(self, held: bool) -> None:
        self.held = held


def exchange(method: str = "GET", http10: bool = False, complete: bool = True) -> tuple[Exchange, Connection]:
    connection = Connection()
    made = Exchange(connection, "192.0.2.7", Head(method, b"/fn/a/b", [], http10))
    made.body_complete = complete
    return made, connection


def parts(sent: bytes) -> tuple[bytes, list[bytes], bytes]:
    head, _, body = sent.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    return line, headers, body


def test_a_whole_answer() -> None:
    made, connection = exchange()
    made.respond(200, b"Set-Cookie: a\r\nSet-Cookie: b\r\n", b"body")
    assert parts(connection.sent) == (
        b"HTTP/1.1 200 OK",
        [b"Set-Cookie: a", b"Set-Cookie: b", b"content-length: 4"],
        b"body",
    )
    assert connection.done
    assert made.done


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("streamed", [True, False])
def test_statuses_without_a_body_have_none(status: int, streamed: bool) -> None:
    made, connection = exchange()
    if streamed:
        made.start(status, b"")
        assert made.write(b"dropped")
        assert not made.misfit(7, False)
        made.finish()
    else:
        made.respond(status, b"", b"dropped")
    assert parts(connection.sent)[1:] == ([], b"")
    assert connection.done


@pytest.mark.parametrize("streamed", [True, False])
def test_304_may_state_a_length_and_204_may_not(streamed: bool) -> None:
    for status, headers in ((304, [b"content-length: 9"]), (204, [])):
        made, connection = exchange()
        if streamed:
            made.start(status, b"", 9)
        else:
            made.respond(status, b"", b"", 9)
        assert parts(connection.sent)[1:] == (headers, b"")


@pytest.mark.parametrize(
    ("body", "length", "stated"),
    [(b"body", None, [b"content-length: 4"]), (b"", 9, [b"content-length: 9"]), (b"", None, [])],
)
def test_an_answer_to_head_states_the_length_that_is_known(body: bytes, length, stated: list[bytes]) -> None:
    made, connection = exchange("HEAD")
    made.respond(200, b"", body, length)
    assert parts(connection.sent)[1:] == (stated, b"")


def test_a_streamed_answer_to_head_has_no_body() -> None:
    for length, stated in ((None, []), (9, [b"content-length: 9"])):
        made, connection = exchange("HEAD")
        made.start(200, b"", length)
        assert made.write(b"more than nine bytes")
        assert not made.misfit(100, False)
        assert not made.misfit(0, True)
        made.finish()
        assert parts(connection.sent)[1:] == (stated, b"")
        assert connection.done


def test_a_stream_of_unknown_length_is_chunked() -> None:
    made, connection = exchange()
    made.start(200, b"")
    assert made.write(b"hello")
    assert made.write(b"")
    assert made.write(b"x" * 16)
    made.finish()
    assert parts(connection.sent)[1:] == (
        [b"transfer-encoding: chunked"],
        b"5\r\nhello\r\n10\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n",
    )
    assert not made.close_after


def test_a_stream_of_unknown_length_to_an_http10_client_ends_with_the_connection() -> None:
    made, connection = exchange(http10=True)
    made.start(200, b"")
    made.write(b"hello")
    made.finish()
    assert parts(connection.sent)[1:] == ([b"connection: close"], b"hello")
    assert made.close_after


def test_a_stream_of_known_length_is_as_long_as_announced() -> None:
    made, connection = exchange()
    made.start(200, b"", 9)
    assert not made.misfit(5, False)
    made.write(b"hello")
    assert "longer" in made.misfit(5, False)
    assert "shorter" in made.misfit(3, True)
    assert not made.misfit(4, False)
    assert not made.misfit(4, True)
    made.write(b"four")
    assert "longer" in made.misfit(1, False)
    made.finish()
    assert parts(connection.sent)[1:] == ([b"content-length: 9"], b"hellofour")


def test_an_answer_before_the_body_is_read_ends_the_connection() -> None:
    made, connection = exchange("POST", complete=False)
    made.respond(413, b"", b"")
    assert b"connection: close" in connection.sent
    assert made.close_after


def test_a_full_buffer_is_said() -> None:
    made, connection = exchange()
    made.start(200, b"")
    connection.writable = False
    assert not made.write(b"hello")


def test_nothing_is_said_after_the_end() -> None:
    made, connection = exchange()
    made.gone()
    made.respond(200, b"", b"")
    made.start(200, b"")
    assert made.write(b"x")
    made.finish()
    made.abort()
    assert connection.sent == b""
    assert not connection.done
    assert not connection.aborted


def test_100_continue_is_said_once_and_only_when_the_body_is_still_to_come() -> None:
    made, connection = exchange("POST", complete=False)
    made.expect_continue = True
    made.want_body()
    made.want_body()
    assert connection.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    made, connection = exchange("POST", complete=False)
    made.expect_continue = True
    made.feed(b"already here")
    made.want_body()
    assert connection.sent == b""


def test_unknown_statuses_have_a_line() -> None:
    assert status_line(299) == b"HTTP/1.1 299 \r\n"
    assert status_line(404) == b"HTTP/1.1 404 Not Found\r\n"
    assert has_no_body(204)
    assert not has_no_body(200)
