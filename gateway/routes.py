"""What the activator needs to know of a live revision, computed once when traffic is switched to it."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.catalog import Resources, Revision, Timeouts


@dataclass(frozen=True, slots=True)
class Route:
    """One function's live revision, ready for the hot path."""

    namespace: str
    function: str
    number: int
    #: The revision's key in the pool.
    revision: str
    #: b"/fn/<namespace>/<function>".
    mount: bytes
    public: bool
    timeouts: Timeouts
    max_body_bytes: int
    #: The answer's header that names the revision, as a line.
    revision_line: bytes
    account: str
    slice_kind: str
    price_version: int


def slice_kind_of(resources: Resources) -> str:
    """The kind of slice that the revision's workers take."""
    return resources.gpu or ("gpu" if resources.gpus or resources.gpu_memory_bytes else "cpu")


def route_of(revision: Revision, account: str, price_version: int) -> Route:
    """The route of a revision; `account` pays for its namespace."""
    manifest = revision.manifest
    return Route(
        namespace=revision.namespace,
        function=revision.function,
        number=revision.number,
        revision=revision.key,
        mount=f"/fn/{revision.namespace}/{revision.function}".encode(),
        public=manifest.public,
        timeouts=manifest.timeouts,
        max_body_bytes=manifest.max_body_bytes,
        revision_line=b"x-samovar-revision: %b\r\n" % revision.key.encode(),
        account=account,
        slice_kind=slice_kind_of(manifest.resources),
        price_version=price_version,
    )
