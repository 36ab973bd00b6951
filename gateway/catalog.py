"""The things a tenant deploys, as frozen values: manifest, revision, function.

Shared by whoever reads a manifest, stores it, builds from it or serves it; behaviour lives with those modules.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

MIB = 1024 * 1024

#: Names of namespaces and functions: the one rule for manifest, API and registry.
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
NAME_RULE = "is made of lower-case letters, digits and inner '-', 63 characters at most"


@dataclass(frozen=True)
class Timeouts:
    """Limits of one call, seconds. `idle_s` 0: off."""

    #: From arrival to the end of the answer, waiting included.
    total_s: float = 300.0
    #: From dispatch to the head of the answer.
    first_byte_s: float = 300.0
    #: Between two pieces of the answer's body.
    idle_s: float = 0.0
    #: How long a worker may take to get ready, and a call may wait for one.
    start_s: float = 60.0


@dataclass(frozen=True)
class Resources:
    """What one worker needs. The GPU fields are validated and stored; packing onto slices reads them."""

    cpu_millis: int = 0
    memory_bytes: int = 256 * MIB
    #: A MIG profile ("1g.10gb") or a GPU type ("h100"); empty: none by name.
    gpu: str = ""
    gpus: int = 0
    gpu_memory_bytes: int = 0


@dataclass(frozen=True)
class Scale:
    """`[scale]` of the manifest; see warmpool.values.ScaleParams for the meaning."""

    min: int = 0
    #: 0: no bound but the pool's own.
    max: int = 0
    #: 0: from the concurrency.
    target: float = 0.0
    idle_timeout_s: float = 60.0
    keep_alive: str = "fixed"


@dataclass(frozen=True)
class Manifest:
    """function.toml, read and validated."""

    name: str
    namespace: str
    #: "module:attribute".
    handler: str
    #: "auto" | "event" | "asgi".
    shape: str = "auto"
    #: "" = the gateway's own Python version, else like "3.12".
    python: str = ""
    requirements: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    concurrency: int = 1
    timeouts: Timeouts = Timeouts()
    resources: Resources = Resources()
    scale: Scale = Scale()
    #: Callable without a token.
    public: bool = False
    max_body_bytes: int = 64 * MIB

    def as_dict(self) -> dict[str, Any]:
        """JSON-able form, as stored with the revision."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Manifest:
        """The stored form back; trusted, since it was validated before it was stored."""
        rest = dict(values)
        return Manifest(
            timeouts=Timeouts(**rest.pop("timeouts")),
            resources=Resources(**rest.pop("resources")),
            scale=Scale(**rest.pop("scale")),
            requirements=tuple(rest.pop("requirements")),
            **rest,
        )


@dataclass(frozen=True)
class Revision:
    """An immutable version of a function. `state`: building | ready | failed."""

    namespace: str
    function: str
    number: int
    manifest: Manifest
    bundle_digest: str
    environment_digest: str
    #: The environment's interpreter, absolute.
    python: str
    state: str = "building"
    #: The shape that the proof found, when the manifest says "auto".
    shape: str = "auto"
    #: Modules that the proof saw imported, to be imported before the fork.
    preload: tuple[str, ...] = ()
    error: str = ""
    #: UTC, seconds since the epoch.
    created_at: float = 0.0

    @property
    def key(self) -> str:
        """The revision's name everywhere inside: "namespace/function@number"."""
        return f"{self.namespace}/{self.function}@{self.number}"


@dataclass(frozen=True)
class Function:
    """A function and the revision that serves it (`live` None: nothing deployed successfully yet)."""

    namespace: str
    name: str
    live: int | None
    public: bool
    #: UTC, seconds since the epoch.
    created_at: float = 0.0
    updated_at: float = 0.0
