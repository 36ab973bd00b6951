"""The words that gateway, node agent and worker say to each other, as values.

Two kinds of link use them. A worker holds one connection straight to the gateway and carries calls on it; an
agent holds one connection and carries orders and reports. Every connection opens with `Hello`.

Editing rules: a message's number on the wire is its place in `MESSAGES`, so new ones go to the end; a field's
type is checked on arrival (`runtime.codec`), so keep to int, str, bytes, bool, list and dict. Bodies travel in
pieces of at most `CHUNK_BYTES`; a side sends at most `WINDOW_BYTES` of one call's body beyond what the other
side has credited.
"""

from __future__ import annotations

from typing import Any, NamedTuple

#: Spoken in `Hello`; a peer with another number is refused.
PROTOCOL_VERSION = 1
#: Largest piece of a body in one frame.
CHUNK_BYTES = 256 * 1024
#: How far one call's body may run ahead of the reader's credit, each way.
WINDOW_BYTES = 1024 * 1024
#: Largest frame accepted: one chunk and the largest head beside it.
MAX_FRAME_BYTES = CHUNK_BYTES + 256 * 1024

Header = list[bytes]  # [name, value]; names as they came, order and repeats kept


class Hello(NamedTuple):
    """First frame of every connection: who dials, with the one-time token it was given."""

    role: str  # "agent" | "worker"
    ident: str
    token: str
    version: int
    pid: int


# --- worker link: gateway -> worker -------------------------------------------------------------------------


class Request(NamedTuple):
    """One call. `call` is unique on this connection; `last` says that `body` is all of it.

    `target` is the raw path and query after the function's mount point (`/fn/<ns>/<function>`), starting with
    "/" or "?" or empty; `mount` is that mount point. `timeout_ms` is what is left of the call's total time.
    """

    call: int
    invocation: str
    method: str
    mount: bytes
    target: bytes
    headers: list[Header]
    body: bytes
    last: bool
    timeout_ms: int
    scheme: str
    peer: str


class Body(NamedTuple):
    """More of a body, either way. `stats` is empty unless a worker sends the last piece of a response."""

    call: int
    data: bytes
    last: bool
    stats: list[int]


class Credit(NamedTuple):
    """The reader has used `amount` more bytes of this call's body, either way."""

    call: int
    amount: int


class Cancel(NamedTuple):
    """The caller is gone or out of time. The worker still ends the call with one Response, Body or Failed."""

    call: int
    reason: str  # "client_gone" | "timeout"


# --- worker link: worker -> gateway -------------------------------------------------------------------------


class Ready(NamedTuple):
    """The handler is loaded and calls may come. `imports`: third-party and standard top-level modules loaded."""

    init_us: int
    shape: str
    imports: list[str]


class StartFailed(NamedTuple):
    """The handler could not be loaded; the process ends after this. `kind`: import_error | handler_not_found |
    syntax_error | bad_shape | lifespan_failed | exited."""

    kind: str
    error_type: str
    message: str
    traceback: str


class Response(NamedTuple):
    """Head of an answer and the first of its body; `stats` = [run_us, cpu_us, peak_rss_bytes] when `last`."""

    call: int
    status: int
    headers: list[Header]
    body: bytes
    last: bool
    stats: list[int]


class Failed(NamedTuple):
    """The call ended without a proper answer. `kind`: raised | bad_result | bad_request | cancelled | broken.

    `bad_request` is the caller's fault (a body that is not the JSON the handler takes), `raised`, `bad_result`
    and `broken` (the stream broke after it had begun) the function's.
    """

    call: int
    kind: str
    error_type: str
    message: str
    traceback: str
    stats: list[int]


# --- agent link: gateway -> agent ---------------------------------------------------------------------------


class StartWorker(NamedTuple):
    """Start one worker. `spec` is `runtime.spec.WorkerSpec` as a dict."""

    worker: str
    spec: dict[str, Any]


class StopWorker(NamedTuple):
    """SIGTERM now, SIGKILL to the whole process group after `grace_ms` (0: at once)."""

    worker: str
    grace_ms: int


class LoadEnvironment(NamedTuple):
    """Have a zygote of this environment with these modules imported. `python` is its interpreter."""

    environment: str
    python: str
    preload: list[str]


class DropEnvironment(NamedTuple):
    """End the environment's zygote; its workers go on."""

    environment: str


class Shutdown(NamedTuple):
    """Stop every worker with this grace and leave."""

    grace_ms: int


# --- agent link: agent -> gateway ---------------------------------------------------------------------------


class Report(NamedTuple):
    """What this agent holds. `slices`: [slice_id, kind, cpu_millis, memory_bytes, max_workers] each."""

    node: str
    slices: list[list[Any]]
    workers: list[str]
    environments: list[str]


class Started(NamedTuple):
    """The worker's process exists. `how`: zygote | spawn; `note` says why when it is not the usual way."""

    worker: str
    pid: int
    how: str
    start_us: int
    note: str


class Exited(NamedTuple):
    """The worker's process is gone, with its whole group. `code` is -1 when a signal ended it."""

    worker: str
    code: int
    signal: int
    note: str


class EnvironmentLoaded(NamedTuple):
    """The environment's zygote is ready. `mode`: zygote | spawn (it may not be forked; `note` says why)."""

    environment: str
    mode: str
    load_us: int
    note: str


class EnvironmentFailed(NamedTuple):
    """The environment's interpreter could not be started at all."""

    environment: str
    message: str


class Log(NamedTuple):
    """Lines a worker wrote. Longer lines are cut with a note; `stream`: stdout | stderr."""

    worker: str
    stream: str
    lines: list[bytes]


Message = (
    Hello | Request | Body | Credit | Cancel | Ready | StartFailed | Response | Failed
    | StartWorker | StopWorker | LoadEnvironment | DropEnvironment | Shutdown
    | Report | Started | Exited | EnvironmentLoaded | EnvironmentFailed | Log
)  # fmt: skip

#: Place in this tuple = number on the wire.
MESSAGES: tuple[type[Message], ...] = (
    Hello, Request, Body, Credit, Cancel, Ready, StartFailed, Response, Failed,
    StartWorker, StopWorker, LoadEnvironment, DropEnvironment, Shutdown,
    Report, Started, Exited, EnvironmentLoaded, EnvironmentFailed, Log,
)  # fmt: skip
