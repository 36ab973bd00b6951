"""A metering record as bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.metering import record as record_module
from gateway.metering.bench import sample_records
from gateway.metering.record import COLUMNS, NUMBER_MAX, MeteringRecord, arrived_us, decode, encode

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=70)
NUMBER = st.integers(0, NUMBER_MAX)
SMALL = st.integers(0, (1 << 31) - 1)
RECORDS = st.builds(
    MeteringRecord,
    invocation=st.uuids().map(str),
    arrived_us=st.integers(946_684_800_000_000, 253_370_764_800_000_000),
    namespace=TEXT,
    function=TEXT,
    revision=SMALL,
    token_id=TEXT,
    account=TEXT,
    start_kind=st.sampled_from(["hot", "warm", "cold", "frozen", ""]),
    queued_us=NUMBER,
    start_us=NUMBER,
    init_us=NUMBER,
    run_us=NUMBER,
    slice_kind=TEXT,
    slice_ms=NUMBER,
    cpu_us=NUMBER,
    peak_memory_bytes=NUMBER,
    bytes_in=NUMBER,
    bytes_out=NUMBER,
    status=st.integers(100, 999),
    fault=st.sampled_from(["none", "caller", "function", "platform"]),
    client_gone=st.booleans(),
    price_version=SMALL,
)


@given(RECORDS)
def test_a_record_comes_back_from_its_bytes_as_it_was(record: MeteringRecord) -> None:
    data = encode(record)
    assert decode(data) == record
    assert arrived_us(data) == record.arrived_us


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("cpu_us", 1 << 63, NUMBER_MAX),
        ("cpu_us", -1, 0),
        ("peak_memory_bytes", (1 << 64) - 1, NUMBER_MAX),
        ("run_us", 1 << 70, NUMBER_MAX),
        ("revision", 1 << 40, (1 << 31) - 1),
        ("arrived_us", -5, 946_684_800_000_000),
        ("arrived_us", 1 << 62, 253_370_764_800_000_000),
        ("namespace", "a\0b", "ab"),
        ("account", "a" * 5000, "a" * 256),
        ("function", "lone \ud800", "lone ?"),
    ],
)
def test_what_no_column_takes_is_cut_to_what_it_takes(field: str, value: Any, kept: Any) -> None:
    record = sample_records(1)[0]._replace(**{field: value})
    assert decode(encode(record)) == record._replace(**{field: kept})


def test_an_invocation_that_is_no_uuid_is_refused() -> None:
    with pytest.raises(ValueError):
        encode(sample_records(1)[0]._replace(invocation="hello"))


@given(st.binary(max_size=300))
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="record"):
        decode(data)


def test_remembered_texts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_module, "_TEXTS_MAX", 10)
    plain = sample_records(1)[0]
    for number in range(100):
        record = plain._replace(function=f"f{number}")
        assert decode(encode(record)) == record
        assert len(record_module._texts) <= 10


def test_every_column_has_its_field() -> None:
    fields = {"arrived_us" if name == "arrived_at" else name for name in COLUMNS}
    assert fields == set(MeteringRecord._fields)
