"""`samovar invoke`: one call of a function, its answer's bytes on stdout as they come."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, BinaryIO

import click

from samovar.answer import Served, body_fields, complaint, is_refused_token, served, traceback_of
from samovar.client import MAX_ERROR_BYTES, Client, authorisation_hint, error_of
from samovar.names import FunctionName, parse_name
from samovar.options import Asked, asks_gateway
from samovar.output import note, paint, say_json
from samovar.payload import Headers, Payload, parse_headers, read_payload
from samovar.problems import NotAuthorised, Problem

if TYPE_CHECKING:
    import httpx

#: Largest answer that `--json` holds in memory.
MAX_JSON_BODY_BYTES = 64 * 1024 * 1024


@click.command(short_help="Call a function.")
@click.argument("name")
@click.option("-d", "--data", metavar="JSON|@FILE|-", help="The body: JSON text, a file, or stdin.")
@click.option("--path", default="", metavar="P", help="What follows the function's URL, such as /v1/items?x=1.")
@click.option("-X", "--request", "method", default="POST", show_default=True, metavar="METHOD")
@click.option("-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="A header; repeat for more.")
@click.option("-i", "--include", is_flag=True, help="Show the answer's status and headers first.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr how it was served, terminal or not.")
@click.option("--timeout", type=click.FloatRange(min=0.001), metavar="SECONDS", help="Longest wait between two pieces.")
@asks_gateway
def invoke(
    asked: Asked, name: str, data: str | None, path: str, method: str, headers: tuple[str, ...],
    include: bool, verbose: bool, timeout: float | None,
) -> int:  # fmt: skip
    """Call a function and write its answer to stdout as it comes.

    Ends with 1 when the answer's status is 400 or more; the answer is shown all the same.
    """
    full = parse_name(name)
    given = parse_headers(headers)
    payload = read_payload(data, sys.stdin.buffer, _has_content_type(given))
    with asked.client() as client:
        with client.stream(
            method.upper(),
            f"/fn/{full.path}{_tail(path)}",
            read_s=timeout or client.waits.invoke_s,
            content=payload.content,
            headers=_headers(given, payload),
        ) as answer:
            how = served(answer.headers)
            if asked.as_json:
                content = _whole(client, answer)
                say_json(_as_object(answer, how, content))
            else:
                content = _show(client, answer, sys.stdout.buffer, include)
            status = answer.status_code
        if is_refused_token(status, how, content):
            message = str(error_of(content).get("message") or f"the gateway answered {status}")
            raise NotAuthorised(message, hint=authorisation_hint(status, client.target))
    if status >= 400:
        _complain(full, status, how, content, asked.as_json)
    elif (verbose or sys.stderr.isatty()) and not asked.as_json and how.summary():
        note(how.summary())
    return 1 if status >= 400 else 0


def _tail(path: str) -> str:
    return path if not path or path[0] in "/?" else "/" + path


def _has_content_type(headers: Headers) -> bool:
    return any(name.lower() == "content-type" for name, _ in headers)


def _headers(given: Headers, payload: Payload) -> Headers:
    headers = list(given)
    if payload.content_type and not _has_content_type(given):
        headers.append(("content-type", payload.content_type))
    if payload.length is not None:
        headers.append(("content-length", str(payload.length)))
    # Without it the answer might come in a coding that nobody asked for.
    if not any(name.lower() == "accept-encoding" for name, _ in given):
        headers.append(("accept-encoding", "identity"))
    return headers


def _show(client: Client, answer: httpx.Response, out: BinaryIO, include: bool) -> bytes:
    """Write the answer as it comes; gives its beginning, for the message of an error."""
    on_terminal = sys.stdout.isatty()
    if include:
        head = [f"{answer.http_version} {answer.status_code} {answer.reason_phrase}".rstrip()]
        head += [f"{name.decode('latin-1')}: {value.decode('latin-1')}" for name, value in answer.headers.raw]
        out.write(("\n".join(head) + "\n\n").encode("latin-1"))
        out.flush()
    start = b""
    last = b""
    for piece in client.pieces(answer):
        if on_terminal and b"\0" in piece:
            kind = answer.headers.get("content-type", "binary")
            note(f"the answer is binary ({kind}) and not shown on a terminal: add > FILE")
            break
        out.write(piece)
        out.flush()
        last = piece[-1:] or last
        if len(start) < MAX_ERROR_BYTES:
            start += piece
    if on_terminal and last not in {b"", b"\n"}:
        out.write(b"\n")
        out.flush()
    return start


def _whole(client: Client, answer: httpx.Response) -> bytes:
    pieces = []
    length = 0
    for piece in client.pieces(answer):
        length += len(piece)
        if length > MAX_JSON_BODY_BYTES:
            limit = MAX_JSON_BODY_BYTES // 1024**2
            raise Problem(f"the answer is over {limit} MiB, too large for --json", hint="leave --json out")
        pieces.append(piece)
    return b"".join(pieces)


def _as_object(answer: httpx.Response, how: Served, content: bytes) -> dict[str, object]:
    return {
        "status": answer.status_code,
        "start_kind": how.start_kind,
        "invocation": how.invocation,
        "revision": how.revision,
        "fault": how.fault,
        "timing_ms": how.timing_ms,
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in answer.headers.raw],
        **body_fields(content, answer.headers.get("content-type", "")),
    }


def _complain(name: FunctionName, status: int, how: Served, content: bytes, as_json: bool) -> None:
    message, hint = complaint(name.short, status, how, content)
    if as_json:
        return  # the object on stdout says it all
    if text := traceback_of(content):
        note(paint(text, "yellow", sys.stderr))
    note(f"{paint('error:', 'red', sys.stderr)} {message}")
    if hint:
        note(f"  {hint}")
