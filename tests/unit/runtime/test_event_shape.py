"""Event handlers: bodies to events, results to answers, contexts. No process, no socket."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from runtime.messages import Request
from runtime.shapes.event import BadEvent, EventHandler, decode_event
from runtime.shapes.event_context import Context
from runtime.shapes.event_result import BadResult, encode_result
from runtime.spec import WorkerSpec

SPEC = WorkerSpec("w", "", "", "lab", "embed", 3, "", "", "", "handler:main", memory_bytes=512 * 1024 * 1024)
JSON = [[b"Content-Type", b"application/json"]]


def request(**more: Any) -> Request:
    values: dict[str, Any] = {
        "call": 1, "invocation": "0190", "method": "PUT", "mount": b"/fn/lab/embed", "target": b"/a%20b?x=1&x=2&y",
        "headers": [[b"X-One", b"1"], [b"x-one", b"2"]], "body": b"", "last": True, "timeout_ms": 5_000,
        "scheme": "http", "peer": "10.0.0.1",
    }  # fmt: skip
    return Request(**(values | more))


# --- events -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "body", "event"),
    [
        (JSON, b"", None),
        ([[b"content-type", b"text/plain"]], b"", None),
        (JSON, b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        (JSON, b' \n{"a": 1}\n ', {"a": 1}),
        (JSON, b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        ([[b"CONTENT-TYPE", b"Application/JSON; charset=utf-8"]], b"1", 1),
        ([[b"content-type", b"application/cloudevents+json"]], b'"x"', "x"),
        ([], b"true", True),
        ([[b"content-type", b"application/octet-stream"]], b"\xff", b"\xff"),
        ([[b"content-type", b"application/x-www-form-urlencoded"]], b"a=1", b"a=1"),
    ],
)
def test_a_body_becomes_the_event_its_content_type_says(headers: list[list[bytes]], body: bytes, event: object) -> None:
    assert decode_event(headers, body) == event


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"{not json", "line 1 column 2"),
        (b'{"a": 1} x', "Extra data"),
        (b'["a",\n"b"', "line 2"),
        (b'"\xff"', "UTF-8 at byte 1"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 10_000, "cannot be read|not JSON that can be read"),
        (b" ", "line 1"),
    ],
)
def test_a_body_that_is_not_json_is_refused_with_the_place(body: bytes, part: str) -> None:
    with pytest.raises(BadEvent, match=part):
        decode_event(JSON, body)


# --- results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "content_type", "body"),
    [
        (None, b"application/json", b"null"),
        ("text", b"application/json", b'"text"'),
        ({"a": [1, "é"]}, b"application/json", '{"a":[1,"é"]}'.encode()),
        ((1, 2), b"application/json", b"[1,2]"),
        (b"\x00\xff", b"application/octet-stream", b"\x00\xff"),
        (bytearray(b"x"), b"application/octet-stream", b"x"),
        (memoryview(b"x"), b"application/octet-stream", b"x"),
        ({"statusCode": "odd"}, b"application/json", b'{"statusCode":"odd"}'),
    ],
)
def test_a_result_becomes_an_answer(result: object, content_type: bytes, body: bytes) -> None:
    assert encode_result(result) == (200, [[b"content-type", content_type]], body)


def test_lone_surrogates_are_escaped() -> None:
    assert json.loads(encode_result({"text": "\ud800"}).body) == {"text": "\ud800"}
    assert encode_result("\ud800").body == b'"\\ud800"'


class Odd:
    pass


def _circle() -> list[object]:
    circle: list[object] = []
    circle.append(circle)
    return circle


def _deep() -> list[object]:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


async def _coroutine() -> None:
    pass


@pytest.mark.parametrize(
    ("result", "part"),
    [
        ({"a": [1, Odd()]}, r"result\['a'\]\[1\] is of type Odd"),
        ({"x": float("nan")}, r"result\['x'\] is NaN"),
        ([float("-inf")], r"result\[0\] is -Infinity"),
        (float("inf"), "result is Infinity"),
        ({1, 2}, "result is of type set"),
        ({"a": b"x"}, r"result\['a'\] is of type bytes"),
        ({(1, 2): 3}, "result has a key of type tuple"),
        ({"deep": {"k": object()}}, r"result\['deep'\]\['k'\] is of type object"),
        (_coroutine(), "result is of type coroutine"),
    ],
)
def test_a_result_that_is_not_json_is_refused_with_type_and_place(result: object, part: str) -> None:
    with pytest.raises(BadResult, match=part):
        encode_result(result)


@pytest.mark.parametrize("make", [_circle, _deep])
def test_endless_and_deep_results_are_refused(make: Any) -> None:
    with pytest.raises(BadResult, match="deeply"):
        encode_result(make())


def test_a_dict_with_a_status_code_is_an_http_answer() -> None:
    answer = encode_result(
        {
            "statusCode": 201,
            "headers": {"X-A": "1", "x-n": 5, "x-b": True},
            "multiValueHeaders": {"x-m": ["1", "2"]},
            "cookies": ["a=1", "b=2"],
            "body": "text é",
        }
    )
    assert answer.status == 201
    assert answer.body == "text é".encode()
    assert answer.headers == [
        [b"X-A", b"1"], [b"x-n", b"5"], [b"x-b", b"true"], [b"x-m", b"1"], [b"x-m", b"2"],
        [b"set-cookie", b"a=1"], [b"set-cookie", b"b=2"], [b"content-type", b"application/json"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "body", "content_type"),
    [
        ({}, b"", b"application/json"),
        ({"body": {"a": 1}}, b'{"a":1}', b"application/json"),
        ({"body": b"\xff"}, b"\xff", b"application/octet-stream"),
        ({"body": "/wA=", "isBase64Encoded": True}, b"\xff\x00", b"application/octet-stream"),
        ({"body": "<p>", "headers": {"Content-Type": "text/html"}}, b"<p>", b"text/html"),
        ({"body": "\ud800"}, b"\\ud800", b"application/json"),
    ],
)
def test_bodies_of_http_answers(more: dict[str, Any], body: bytes, content_type: bytes) -> None:
    answer = encode_result({"statusCode": 200} | more)
    assert answer.body == body
    assert answer.headers[-1][1] == content_type


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"statusCode": 99}, "statusCode is 99"),
        ({"headers": ["x"]}, "headers is of type list"),
        ({"headers": {"x": object()}}, r"headers\['x'\] is of type object"),
        ({"headers": {"x": "a\r\nb: c"}}, "line break"),
        ({"headers": {"x": "€"}}, "no HTTP header"),
        ({"multiValueHeaders": {"x": "1"}}, "must be a list"),
        ({"cookies": "a=1"}, "cookies is of type str"),
        ({"body": "*", "isBase64Encoded": True}, "base64"),
        ({"body": {"a": Odd()}}, r"\['a'\] is of type Odd"),
    ],
)
def test_a_bad_http_answer_is_refused_with_the_field(more: dict[str, Any], part: str) -> None:
    with pytest.raises(BadResult, match=part):
        encode_result({"statusCode": 200} | more)


# --- calling ------------------------------------------------------------------------------------------------


def test_the_handler_is_called_with_or_without_a_context() -> None:
    assert EventHandler(lambda event, context: context.function_name, SPEC).run(request(), b"").body == b'"embed"'
    assert EventHandler(lambda event: event, SPEC).run(request(headers=JSON), b"[1]").body == b"[1]"
    assert EventHandler(lambda *args: len(args), SPEC).run(request(), b"").body == b"2"


async def test_async_handlers_are_recognised_and_awaited() -> None:
    async def main(event: Any) -> Any:
        return event

    handler = EventHandler(main, SPEC)
    assert handler.is_async
    assert (await handler.run_async(request(headers=JSON), b"7")).body == b"7"


def test_the_context_is_that_of_lambda_with_http_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    context = Context(SPEC, request())
    assert context.function_name == "embed"
    assert context.function_version == "3"
    assert context.memory_limit_in_mb == "512"
    assert context.aws_request_id == context.invocation_id == "0190"
    assert context.invoked_function_arn == "arn:samovar:function:lab:embed:3"
    assert context.log_group_name == "/samovar/lab/embed"
    assert context.client_context is None
    assert context.identity is None
    assert 0 < context.get_remaining_time_in_millis() <= 5_000
    assert abs(context.deadline - time.time() - 5) < 2
    assert (context.namespace, context.method, context.path) == ("lab", "PUT", "/a b")
    assert context.query_string == "x=1&x=2&y"
    assert context.query == {"x": "1,2", "y": ""}
    assert context.headers == {"x-one": "1, 2"}
    assert context.client == "10.0.0.1"
    context.log("a line")
    assert capsys.readouterr().out == "a line\n"


def test_no_time_left_is_zero_and_an_empty_path_is_the_root() -> None:
    context = Context(SPEC, request(timeout_ms=0, target=b""))
    assert context.get_remaining_time_in_millis() == 0
    assert context.path == "/"
