"""The appending side of the journal."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.metering.bench import sample_records
from gateway.metering.journal import Journal, JournalFull, JournalParams
from gateway.metering.record import MeteringRecord, decode, encode
from gateway.metering.segments import DAMAGED_SUFFIX, FIRST_POSITION, HEAD_BYTES, SUFFIX, read_entries

MANY = 1 << 30


def records_in(journal: Journal) -> list[MeteringRecord]:
    found = []
    for segment in journal.segments():
        found += read_entries(segment.path, 0, segment.size, MANY, MANY).payloads
    return [decode(payload) for payload in found]


def test_what_is_appended_is_there_in_order(tmp_path: Path) -> None:
    journal, made = Journal(tmp_path), sample_records(50)
    for record in made:
        journal.append(record)
    assert records_in(journal) == made
    assert (journal.appended, journal.refused) == (50, 0)


def test_a_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, record = Journal(tmp_path), sample_records(1)[0]
    writes: list[int] = []
    real = os.write

    def counted(descriptor: int, data: bytes) -> int:
        writes.append(len(data))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", counted)
    journal.append(record)
    assert writes == [HEAD_BYTES + len(encode(record))]


def test_a_full_segment_is_followed_by_the_next(tmp_path: Path) -> None:
    made = sample_records(40)
    journal = Journal(tmp_path, JournalParams(segment_bytes=1000))
    for record in made:
        journal.append(record)
    segments = journal.segments()
    assert len(segments) > 5
    assert [segment.active for segment in segments] == [False] * (len(segments) - 1) + [True]
    assert all(segment.size == segment.path.stat().st_size <= 1000 for segment in segments)
    assert records_in(journal) == made
    assert journal.size() == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_later_process_lists_what_an_earlier_one_left_and_writes_elsewhere(tmp_path: Path) -> None:
    made = sample_records(2)
    first = Journal(tmp_path)
    first.append(made[0])
    second = Journal(tmp_path)
    second.append(made[1])
    assert [segment.active for segment in second.segments()] == [False, True]
    assert records_in(second) == made


def test_the_disk_is_bounded_and_appending_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    made = sample_records(200)
    journal = Journal(tmp_path, JournalParams(segment_bytes=1000, total_bytes=4000))
    kept = 0
    with pytest.raises(JournalFull):
        for record in made:
            journal.append(record)
            kept += 1
    assert 0 < kept < 200
    assert journal.refused == 1
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4000
    with pytest.raises(OSError):
        journal.append(made[kept])
    journal.drop(journal.segments()[0].name)
    journal.append(made[kept])
    assert records_in(journal)[-1] == made[kept]
    assert journal.refused == 2


def test_a_write_that_the_disk_took_in_part_leaves_whole_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, made = Journal(tmp_path), sample_records(3)
    journal.append(made[0])
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[: len(data) // 2]))
    with pytest.raises(OSError) as raised:
        journal.append(made[1])
    assert raised.value.errno == errno.ENOSPC
    monkeypatch.undo()
    journal.append(made[2])
    assert records_in(journal) == [made[0], made[2]]
    assert (journal.appended, journal.refused) == (2, 1)


def test_a_segment_torn_at_any_byte_of_its_last_entries_keeps_the_records_before(tmp_path: Path) -> None:
    made = sample_records(6)
    journal = Journal(tmp_path)
    ends = [FIRST_POSITION]
    for record in made:
        journal.append(record)
        ends.append(journal.size())
    path = journal.segments()[0].path
    data = path.read_bytes()
    for cut in range(ends[3], ends[6] + 1):
        path.write_bytes(data[:cut])
        later = Journal(tmp_path)
        whole = max(number for number, end in enumerate(ends) if end <= cut)
        assert records_in(later) == made[:whole]
        later.close()


def test_closing_leaves_records_and_removes_an_empty_segment(tmp_path: Path) -> None:
    record = sample_records(1)[0]
    journal = Journal(tmp_path)
    journal.append(record)
    journal.close()
    Journal(tmp_path).close()
    assert len(list(tmp_path.glob("*" + SUFFIX))) == 1
    assert records_in(journal) == [record]
    with pytest.raises(OSError, match="closed"):
        journal.append(record)


def test_a_damaged_segment_is_put_aside(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.append(sample_records(1)[0])
    second = Journal(tmp_path)
    second.drop(first.segments()[0].name, damaged=True)
    assert len(second.segments()) == 1
    assert len(list(tmp_path.glob("*" + DAMAGED_SUFFIX))) == 1


def test_a_process_killed_after_appending_has_lost_nothing(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from gateway.metering.bench import sample_records\n"
        "from gateway.metering.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "for record in sample_records(500): journal.append(record)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == -9
    assert len(records_in(Journal(tmp_path))) == 500
