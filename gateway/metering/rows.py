"""Metering records as rows of PostgreSQL's binary COPY, built by hand: it is the writer's whole work on our side.

A row is a count of columns, then each value behind its length. The numbers have fixed lengths and go through one
`struct`; the texts of a function's calls hardly ever differ, so their bytes are kept and reused.
"""

from __future__ import annotations

import struct

from gateway.metering.record import MeteringRecord

#: In the order of the bytes below; the table may gain columns without touching this.
COLUMNS = (
    "invocation", "arrived_at",
    "queued_us", "start_us", "init_us", "run_us", "slice_ms", "cpu_us", "peak_memory_bytes", "bytes_in", "bytes_out",
    "revision", "status", "price_version", "client_gone",
    "namespace", "function", "token_id", "account", "start_kind", "slice_kind", "fault",
)  # fmt: skip

#: What COPY wants before the first row and after the last.
COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_END = b"\xff\xff"

#: PostgreSQL counts microseconds from the year 2000.
_EPOCH_2000_US = 946_684_800_000_000
_PACK = struct.Struct(">h" + "i16s" + "iq" * 10 + "ii" * 3 + "i?").pack
#: Numbers above are cut to this, so that a worker that lies about itself cannot make a sum overflow.
NUMBER_MAX = 1 << 48
_INT4_MAX = (1 << 31) - 1
#: Years 1970 to 9999: what a timestamptz can hold without special cases.
_ARRIVED_MAX_US = 253_370_764_800_000_000
_TEXTS_KEPT_MAX = 4096


class RowEncoder:
    """Makes rows; remembers the texts it has seen, a bounded number of them."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, ...], bytes] = {}

    def row(self, record: MeteringRecord) -> bytes:
        """The row of a record. Raises ValueError when its invocation is no UUID."""
        (
            invocation, arrived_us, namespace, function, revision, token_id, account, start_kind, queued_us, start_us,
            init_us, run_us, slice_kind, slice_ms, cpu_us, peak, bytes_in, bytes_out, status, fault, gone, price,
        ) = record  # fmt: skip
        key = (namespace, function, token_id, account, start_kind, slice_kind, fault)
        texts = self._texts.get(key)
        if texts is None:
            texts = self._remember(key)
        identifier = bytes.fromhex(invocation.replace("-", ""))
        if len(identifier) != 16:
            raise ValueError(f"not a UUID: {invocation!r}")
        if (
            max(queued_us, start_us, init_us, run_us, slice_ms, cpu_us, peak, bytes_in, bytes_out) > NUMBER_MAX
            or min(queued_us, start_us, init_us, run_us, slice_ms, cpu_us, peak, bytes_in, bytes_out) < 0
            or not 0 <= arrived_us <= _ARRIVED_MAX_US
            or not (0 <= revision <= _INT4_MAX and 0 <= status <= _INT4_MAX and 0 <= price <= _INT4_MAX)
        ):
            return self.row(_within_bounds(record))
        return (
            _PACK(
                22, 16, identifier, 8, arrived_us - _EPOCH_2000_US, 8, queued_us, 8, start_us, 8, init_us, 8, run_us,
                8, slice_ms, 8, cpu_us, 8, peak, 8, bytes_in, 8, bytes_out, 4, revision, 4, status, 4, price, 1, gone,
            )
            + texts
        )  # fmt: skip

    def _remember(self, key: tuple[str, ...]) -> bytes:
        if len(self._texts) >= _TEXTS_KEPT_MAX:
            self._texts.clear()
        # PostgreSQL's text holds no NUL.
        values = [text.replace("\0", "").encode("utf-8", "replace") for text in key]
        texts = b"".join(struct.pack(">i", len(value)) + value for value in values)
        self._texts[key] = texts
        return texts


def _within_bounds(record: MeteringRecord) -> MeteringRecord:
    return record._replace(
        arrived_us=min(max(record.arrived_us, 0), _ARRIVED_MAX_US),
        **{name: min(max(getattr(record, name), 0), NUMBER_MAX) for name in COLUMNS[2:11]},
        **{name: min(max(getattr(record, name), 0), _INT4_MAX) for name in COLUMNS[11:14]},
    )
