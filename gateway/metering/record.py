"""The metering record: what one call cost, and its bytes in the journal.

One record per accepted call, whatever its end. Its bytes are a row of PostgreSQL's binary COPY (a count of columns,
then each value behind its length), so that a record is put into bytes once in its life: the journal and the writer
only pass them on. The columns' order is the journal's format: append new ones at the end, in the table too, so
that an old journal can be stored by a newer gateway.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID


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


#: The table's columns in the order of the bytes.
COLUMNS = (
    "invocation", "arrived_at",
    "queued_us", "start_us", "init_us", "run_us", "slice_ms", "cpu_us", "peak_memory_bytes", "bytes_in", "bytes_out",
    "revision", "status", "price_version", "client_gone",
    "namespace", "function", "token_id", "account", "start_kind", "slice_kind", "fault",
)  # fmt: skip
#: Numbers are cut to 0 .. this, so that a worker that lies about itself cannot make a sum overflow.
NUMBER_MAX = (1 << 48) - 1
#: Where the arrival time lies in a record's bytes; it compares as bytes as it does as a time.
ARRIVED = slice(26, 34)

_NUMBERS = struct.Struct(">h" + "i16s" + "iq" * 10 + "ii" * 3 + "i?")
_LENGTH = struct.Struct(">i")
_pack = _NUMBERS.pack
_INT4_MAX = (1 << 31) - 1
#: PostgreSQL counts microseconds from the year 2000. Arrivals are kept between that and 9999.
_EPOCH_2000_US = 946_684_800_000_000
_ARRIVED_MAX_US = 253_370_764_800_000_000

#: Texts hardly differ from call to call of a function: their bytes by their values. Cleared when full.
_texts: dict[tuple[str, ...], bytes] = {}
_TEXTS_MAX = 4096
#: Longer texts are cut; names are far shorter.
TEXT_MAX_CHARS = 256


def encode(record: MeteringRecord) -> bytes:
    """The record's bytes in a journal entry (framing and checksum are the journal's).

    Raises ValueError when the invocation is no UUID.
    """
    (
        invocation, arrived_us, namespace, function, revision, token_id, account, start_kind, queued_us, start_us,
        init_us, run_us, slice_kind, slice_ms, cpu_us, peak, bytes_in, bytes_out, status, fault, gone, price,
    ) = record  # fmt: skip
    key = (namespace, function, token_id, account, start_kind, slice_kind, fault)
    texts = _texts.get(key)
    if texts is None:
        texts = _remember(key)
    try:
        # Two of the numbers are the worker's own word.
        if (cpu_us | peak) >> 48 or not _EPOCH_2000_US <= arrived_us <= _ARRIVED_MAX_US:
            raise OverflowError
        return (
            _pack(
                22, 16, bytes.fromhex(invocation.replace("-", "")), 8, arrived_us - _EPOCH_2000_US, 8, queued_us,
                8, start_us, 8, init_us, 8, run_us, 8, slice_ms, 8, cpu_us, 8, peak, 8, bytes_in, 8, bytes_out,
                4, revision, 4, status, 4, price, 1, gone,
            )
            + texts
        )  # fmt: skip
    except (OverflowError, struct.error):
        return encode(_within_bounds(record))


def decode(data: bytes) -> MeteringRecord:
    """The record back. Raises ValueError for bytes that are not one."""
    try:
        numbers = _NUMBERS.unpack_from(data)
        texts = []
        offset = _NUMBERS.size
        while offset < len(data):
            (length,) = _LENGTH.unpack_from(data, offset)
            offset += _LENGTH.size + length
            texts.append(data[offset - length : offset].decode())
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"not a metering record: {error}") from error
    if numbers[0] != len(COLUMNS) or len(texts) != 7 or offset != len(data):
        raise ValueError(f"a metering record has {len(COLUMNS)} columns, this one {numbers[0]}")
    identifier, arrived, queued, start, init, run, slice_ms, cpu, peak, into, out, revision, status, price, gone = (
        numbers[2::2]
    )
    namespace, function, token_id, account, start_kind, slice_kind, fault = texts
    return MeteringRecord(
        str(UUID(bytes=identifier)), arrived + _EPOCH_2000_US, namespace, function, revision, token_id, account,
        start_kind, queued, start, init, run, slice_kind, slice_ms, cpu, peak, into, out, status, fault, gone, price,
    )  # fmt: skip


def arrived_us(data: bytes) -> int:
    """The arrival time in a record's bytes, microseconds since the epoch."""
    return int.from_bytes(data[ARRIVED], "big", signed=True) + _EPOCH_2000_US


def _remember(key: tuple[str, ...]) -> bytes:
    if len(_texts) >= _TEXTS_MAX:
        _texts.clear()
    # PostgreSQL's text holds no NUL.
    values = [text[:TEXT_MAX_CHARS].replace("\0", "").encode("utf-8", "replace") for text in key]
    texts = _texts[key] = b"".join(_LENGTH.pack(len(value)) + value for value in values)
    return texts


def _within_bounds(record: MeteringRecord) -> MeteringRecord:
    """Every number cut to what its column takes."""
    values = record._asdict()
    for names, most in ((COLUMNS[2:11], NUMBER_MAX), (COLUMNS[11:14], _INT4_MAX)):
        for name in names:
            values[name] = int(min(max(values[name], 0), most))
    values["arrived_us"] = int(min(max(record.arrived_us, _EPOCH_2000_US), _ARRIVED_MAX_US))
    return MeteringRecord(**values)
