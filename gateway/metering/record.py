"""The metering record: what one call cost, and its bytes in the journal.

One record per accepted call, whatever its end. The field order is the journal's format; append new fields at the
end and give them a default in `decode`, so that an old journal can be read by a newer gateway.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack


class MeteringRecord(NamedTuple):
    """Times in microseconds, sizes in bytes. Ids as text."""

    #: UUIDv7; carries the arrival time and is unique for ever.
    invocation: str
    #: UTC arrival, microseconds since the epoch.
    arrived_us: int
    namespace: str
    function: str
    revision: int
    #: Empty for public calls.
    token_id: str
    #: The namespace's account at the time of the call.
    account: str
    #: hot | warm | cold | frozen; empty when the call never reached a worker.
    start_kind: str
    queued_us: int
    start_us: int
    init_us: int
    run_us: int
    slice_kind: str
    #: Milliseconds that the call held its share of the slice (run time, rounded up).
    slice_ms: int
    cpu_us: int
    peak_memory_bytes: int
    bytes_in: int
    bytes_out: int
    #: What the caller was told; 499 when it had gone before there was anything to tell.
    status: int
    #: none | caller | function | platform.
    fault: str
    client_gone: bool
    #: Version of the price list in force.
    price_version: int


_pack = msgpack.Packer(autoreset=True, use_bin_type=True).pack


def encode(record: MeteringRecord) -> bytes:
    """The record's bytes in a journal entry (framing and checksum are the journal's)."""
    data: bytes = _pack(record)
    return data


def decode(data: bytes) -> MeteringRecord:
    """The record back. Raises ValueError for bytes that are not one."""
    values: list[Any] = msgpack.unpackb(data)
    if len(values) != len(MeteringRecord._fields):
        raise ValueError(f"a metering record has {len(MeteringRecord._fields)} fields, this one {len(values)}")
    return MeteringRecord._make(values)
