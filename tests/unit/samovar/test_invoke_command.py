"""`samovar invoke`: what is sent, the answer's bytes untouched, and how it ends."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from samovar.answer import complaint, served
from samovar.payload import PEEK_BYTES, parse_headers, read_payload
from samovar.problems import WrongUsage

WHERE = "POST /fn/default/sums"
SERVED = {
    "X_Samovar_Start": "warm", "X_Samovar_Invocation": "0190-1", "X_Samovar_Revision": "default/sums@2",
    "Server_Timing": "queue;dur=0.1, start;dur=3.5, run;dur=12",
}  # fmt: skip


def test_the_answers_bytes_come_out_as_they_are(cli: Any, played: Any) -> None:
    body = bytes(range(256)) * 300
    played.on(WHERE, body, **SERVED)
    ran = cli("invoke", "sums", "-d", "[1, 2]")
    assert (ran.code, ran.out, ran.err) == (0, body, "")
    call = played.calls[-1]
    assert (call.method, call.body, call.header("content-type")) == ("POST", b"[1, 2]", "application/json")
    assert call.header("authorization") == "Bearer smv_test"


def test_a_compressed_answer_is_not_unpacked(cli: Any, played: Any) -> None:
    played.on(WHERE, b"\x1f\x8b not really", **SERVED, Content_Encoding="gzip")
    assert cli("invoke", "sums").out == b"\x1f\x8b not really"


def test_method_path_and_headers_go_out_as_given(cli: Any, played: Any) -> None:
    played.on("PUT /fn/lab/sums/a%2Fb//c", b"ok", **SERVED)
    ran = cli("invoke", "lab/sums", "-X", "put", "--path", "a%2Fb//c?x=1&x=2", "-H", "X-Two: 1", "-H", "X-Two:2")
    assert ran.code == 0
    call = played.calls[-1]
    assert (call.method, call.target) == ("PUT", "/fn/lab/sums/a%2Fb//c?x=1&x=2")
    assert [value for name, value in call.headers if name.lower() == "x-two"] == ["1", "2"]
    assert call.header("content-type") is None


def test_a_file_goes_out_with_the_type_its_name_says(cli: Any, played: Any) -> None:
    played.on(WHERE, b"", **SERVED)
    unknown = "application/octet-stream"
    types = {"a.json": "application/json", "a.jpg": "image/jpeg", "a.csv.gz": unknown, "data": unknown}
    for name, kind in types.items():
        Path(name).write_bytes(b"\xff\xd8" * 100_000)
        assert cli("invoke", "sums", "-d", f"@{name}").code == 0
        call = played.calls[-1]
        assert (len(call.body), call.header("content-type")) == (200_000, kind)
        assert call.header("content-length") == "200000"
    cli("invoke", "sums", "-d", "@a.jpg", "-H", "content-type: image/x-own")
    assert [v for k, v in played.calls[-1].headers if k.lower() == "content-type"] == ["image/x-own"]


def test_stdin_is_json_when_it_is_and_else_bytes(cli: Any, played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    played.on(WHERE, b"", **SERVED)
    large = b"x" * (PEEK_BYTES + 5)
    for content, kind in ((b'{"a": 1}', "application/json"), (b"not", "application/octet-stream"),
                          (large, "application/octet-stream")):  # fmt: skip
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert cli("invoke", "sums", "-d", "-").code == 0
        assert played.calls[-1].body == content
        assert played.calls[-1].header("content-type") == kind


def test_text_that_is_not_json_is_refused_unless_its_type_is_given(cli: Any, played: Any) -> None:
    played.on(WHERE, b"", **SERVED)
    ran = cli("invoke", "sums", "-d", "hello")
    assert ran.code == 2
    assert "@FILE" in ran.err
    assert played.calls == []
    assert cli("invoke", "sums", "-d", "hello", "-H", "Content-Type: text/plain").code == 0
    assert played.calls[-1].body == b"hello"


def test_headers_come_first_when_asked_for(cli: Any, played: Any) -> None:
    played.on(WHERE, b"body", **SERVED)
    head, _, body = cli("invoke", "sums", "-i").text.partition("\n\n")
    assert head.startswith("HTTP/1.1 200 OK\n")
    assert "X-Samovar-Start: warm" in head
    assert body == "body"


def test_verbose_says_how_it_was_served_on_stderr(cli: Any, played: Any) -> None:
    played.on(WHERE, b"body", **SERVED)
    ran = cli("invoke", "sums", "-v")
    assert ran.out == b"body"
    assert ran.err == "warm · queue 0.1 ms, start 3.5 ms, run 12 ms · default/sums@2 · 0190-1\n"


def test_json_gives_one_object_with_everything(cli: Any, played: Any) -> None:
    played.on(WHERE, {"sum": 3}, **SERVED)
    value = cli("invoke", "sums", "--json").value
    assert (value["status"], value["body"], value["start_kind"]) == (200, {"sum": 3}, "warm")
    assert value["timing_ms"] == {"queue": 0.1, "start": 3.5, "run": 12.0}
    played.on(WHERE, b"\xff\x00", **SERVED)
    assert cli("invoke", "sums", "--json").value["body_base64"] == "/wA="
    played.on(WHERE, b"text", **SERVED)
    assert cli("invoke", "sums", "--json").value["body"] == "text"


def test_a_functions_own_error_is_shown_and_ends_with_1(cli: Any, played: Any) -> None:
    played.on(WHERE, b"I am a teapot", 418, **SERVED)
    ran = cli("invoke", "sums")
    assert (ran.code, ran.out) == (1, b"I am a teapot")
    assert "sums answered 418" in ran.err
    ran = cli("invoke", "sums", "--json")
    assert (ran.code, ran.value["status"], ran.err) == (1, 418, "")


def test_a_handler_that_raised_shows_its_traceback_and_where_to_look(cli: Any, played: Any) -> None:
    error = {"code": "handler_failed", "message": "ValueError: no", "detail": {"traceback": "Traceback\n  in main"}}
    played.on(WHERE, {"error": error}, 500, **SERVED, X_Samovar_Fault="function")
    ran = cli("invoke", "sums")
    assert ran.code == 1
    assert json.loads(ran.out) == {"error": error}
    assert "  in main" in ran.err
    assert "the function's fault): ValueError: no" in ran.err
    assert "samovar logs sums" in ran.err


def test_the_gateways_401_ends_with_4_and_the_functions_own_with_1(cli: Any, played: Any) -> None:
    played.refuse(WHERE, 401, "unauthorized", "no token")
    assert cli("invoke", "sums").code == 4
    played.on(WHERE, {"error": {"code": "unauthorized", "message": "log in"}}, 401, **SERVED)
    assert cli("invoke", "sums").code == 1


def test_an_unknown_function_ends_with_1(cli: Any) -> None:
    ran = cli("invoke", "nothing")
    assert ran.code == 1
    assert "nothing answered 404" in ran.err
    assert "samovar list" in ran.err


def test_platform_faults_say_to_try_again() -> None:
    how = served({"x-samovar-fault": "platform", "server-timing": "broken;dur=x, , queue"})
    message, hint = complaint("sums", 503, how, b'{"error": {"message": "queue full"}}')
    assert "free of charge" in message
    assert "queue full" in message
    assert "try again" in hint
    assert how.timing_ms == {}


@pytest.mark.parametrize("header", ["", "no colon", ": x", "a b: c", "X: a\nY: b", "é: 1"])
def test_what_is_no_header_is_refused(header: str) -> None:
    with pytest.raises(WrongUsage, match="-H"):
        parse_headers((header,))


def test_a_file_that_is_not_there_is_wrong_usage() -> None:
    with pytest.raises(WrongUsage, match="cannot be read"):
        read_payload("@not-there", io.BytesIO(), False)
