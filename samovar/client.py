"""The gateway as an object: its HTTP API (docs/api.md), with every failure turned into a Problem once, here."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samovar.discovery import Target, is_loopback
from samovar.problems import NotAuthorised, Problem, Unreachable

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True)
class Waits:
    """How long this side waits, seconds."""

    connect_s: float = 10.0
    #: For one answer of the control API.
    answer_s: float = 60.0
    #: Between two progress lines of a deploy (installing a large environment is one step).
    deploy_step_s: float = 1800.0
    #: Between two pieces of a function's answer, unless --timeout says otherwise.
    invoke_s: float = 900.0
    #: Between two lines of a followed log; the gateway sends an empty one every now and then.
    follow_s: float = 120.0


#: Largest error body that is read for its message.
MAX_ERROR_BYTES = 1024 * 1024


class Client:
    """One gateway. Use as a context manager; raises Problem and its kinds."""

    def __init__(self, target: Target, waits: Waits = Waits()) -> None:
        import ssl  # both imported late: `samovar --help` is to be quick

        import httpx

        self.target = target
        self.waits = waits
        headers = {"user-agent": "samovar"}
        if target.token:
            headers["authorization"] = f"Bearer {target.token}"
        self._http = httpx.Client(
            base_url=target.url,
            headers=headers,
            timeout=httpx.Timeout(waits.answer_s, connect=waits.connect_s),
            trust_env=not is_loopback(target.url),
            # Reading the system's certificates takes longer than a call; plain HTTP has no use for them.
            verify=target.url.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **params: Any) -> Any:
        """The JSON value of a GET; parameters that are None are left out."""
        return self.ask("GET", path, params=params)

    def ask(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """One call of the control API and its JSON value."""
        with self._translated():
            answer = self._http.request(
                method, f"/api/v1/{path}", params=_given(params), json=body if body is not None else None
            )
        if answer.is_error:
            raise self._refusal(answer.status_code, answer.content)
        try:
            return answer.json()
        except ValueError as error:
            raise Problem(
                f"{self.target.url} answered something that is not JSON", hint="is that address a Samovar gateway?"
            ) from error

    def lines(
        self,
        method: str,
        path: str,
        *,
        read_s: float | None,
        params: Mapping[str, Any] | None = None,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """The objects of an NDJSON answer, each as it comes."""
        with self.stream(
            method, f"/api/v1/{path}", read_s=read_s, params=params, content=content, headers=headers
        ) as answer:
            if answer.is_error:
                raise self._refusal(answer.status_code, self.read_some(answer))
            with self._translated():
                for line in answer.iter_lines():
                    if line.strip():
                        yield _object(line)

    @contextlib.contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        read_s: float | None,
        params: Mapping[str, Any] | None = None,
        content: Any = None,
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
    ) -> Iterator[httpx.Response]:
        """A request whose answer is read by the caller as it comes, whatever its status."""
        import httpx

        timeout = httpx.Timeout(self.waits.answer_s, connect=self.waits.connect_s, read=read_s, write=read_s)
        with self._translated():
            request = self._http.build_request(
                method,
                path,
                params=_given(params) or None,
                content=content,
                headers=list(headers.items()) if isinstance(headers, Mapping) else headers,
                timeout=timeout,
            )
            answer = self._http.send(request, stream=True)
        try:
            yield answer
        finally:
            answer.close()

    def pieces(self, answer: httpx.Response) -> Iterator[bytes]:
        """The answer's body as it came over the wire (a content coding is left as it is)."""
        with self._translated():
            yield from answer.iter_raw()

    def read_some(self, answer: httpx.Response) -> bytes:
        """The beginning of a streamed body, enough for an error's message."""
        collected = b""
        for piece in self.pieces(answer):
            collected += piece
            if len(collected) > MAX_ERROR_BYTES:
                break
        return collected

    def absolute(self, url: str) -> str:
        """A function's URL as the gateway gave it, completed where it is only a path."""
        return self.target.url + url if url.startswith("/") else url

    def ready(self) -> bool:
        """Whether the gateway says that calls can be served."""
        with self._translated():
            return self._http.get("/readyz").status_code == 200

    def _refusal(self, status: int, content: bytes) -> Problem:
        return refusal(status, content, self.target)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        import httpx

        url, source = self.target.url, self.target.source
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unreachable(
                f"{url} cannot be reached ({_reason(error)}); it comes from {source}",
                hint="is the gateway running? `samovar up` starts one here",
            ) from error
        except httpx.TimeoutException as error:
            raise Unreachable(f"{url} did not answer in time ({_reason(error)})", hint="try again") from error
        except (httpx.TransportError, httpx.StreamError) as error:
            raise Unreachable(
                f"the connection to {url} broke off ({_reason(error)})", hint="see whether the gateway still runs"
            ) from error
        except httpx.InvalidURL as error:
            raise Problem(f"{url}: {error}", hint="check the address and --path") from error


def refusal(status: int, content: bytes, target: Target) -> Problem:
    """The Problem that an error answer of the gateway means."""
    error = error_of(content)
    message = str(error.get("message") or f"the gateway answered {status}")
    code, detail = str(error.get("code") or ""), error.get("detail")
    if status in {401, 403}:
        return NotAuthorised(message, hint=authorisation_hint(status, target), code=code, detail=detail)
    if status in {502, 503, 504} and not error:
        return Unreachable(f"{target.url} answered {status} and not as a gateway does", hint="is a proxy in between?")
    hint = "`samovar list` and `samovar show NAME` say what there is" if status == 404 else ""
    return Problem(message, hint=hint, code=code, detail=detail)


def authorisation_hint(status: int, target: Target) -> str:
    """What to do about 401 and 403."""
    if status == 403:
        return "the token may not do this: ask for one of that namespace (`samovar token create --namespace NS`)"
    if not target.token:
        return "set SAMOVAR_TOKEN, or give --token"
    return "the token is unknown or has expired: set another one as SAMOVAR_TOKEN"


def error_of(content: bytes) -> dict[str, Any]:
    """The `error` object of an error answer; empty when there is none."""
    try:
        error = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return {}
    return error if isinstance(error, dict) else {}


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise Problem(f"unreadable line from the gateway: {line[:200]!r}", hint="see the gateway's log") from error
    return value if isinstance(value, dict) else {"value": value}


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (params or {}).items() if value is not None}


def _reason(error: Exception) -> str:
    text = str(error).removeprefix("[Errno 111] ")
    return text[:1].lower() + text[1:] if text else type(error).__name__
