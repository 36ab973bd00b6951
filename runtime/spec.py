"""What a worker is told about itself before it is forked: one frozen value, sent as a dict in `StartWorker`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class WorkerSpec:
    """Everything one worker needs to load and serve one revision."""

    worker: str
    #: Where to dial the gateway: "unix:/path/to/socket" or "tcp:host:port".
    connect: str
    #: One-time token for the worker's Hello.
    token: str
    namespace: str
    function: str
    #: The revision's number within its function, shown to handlers as the function's version.
    revision: int
    #: Digest naming the environment; equal digests share a zygote.
    environment: str
    #: The environment's interpreter, absolute.
    python: str
    #: Unpacked, read-only bundle.
    bundle_dir: str
    #: "module:attribute"; dotted modules allowed.
    handler: str
    #: "event" | "asgi" | "auto" (decided from the handler's signature where that is unambiguous).
    shape: str = "auto"
    #: Calls served at once.
    concurrency: int = 1
    #: Environment variables of the function, on top of a small clean set.
    variables: dict[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    cpu_millis: int = 0
    #: A private, empty directory made for this worker and removed when it is gone; becomes TMPDIR.
    scratch_dir: str = ""
    #: Largest body an event handler collects before it is called.
    max_body_bytes: int = 16 * 1024 * 1024
    #: Device identifiers for CUDA_VISIBLE_DEVICES; empty hides every device.
    devices: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The spec for the wire."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> WorkerSpec:
        """The spec from the wire; unknown keys are ignored so that a newer gateway can speak to an older agent."""
        known = {f.name for f in fields(WorkerSpec)}
        return WorkerSpec(**{key: value for key, value in values.items() if key in known})
