"""The event log on a real disk and on one that fails."""

import logging
from pathlib import Path
from random import Random

import pytest

from pcp.distributed.coordinator import (
    CorruptEventLog,
    DirectoryStorage,
    EventLog,
    EventLogFull,
    EventLogWriteFailed,
    RunLocked,
    Storage,
)
from pcp.distributed.coordinator.log.event_log import MAGIC, frame, scan
from pcp.distributed.simulator.machines.disk import Disk, PowerCut
from pcp.distributed.simulator.machines.memory_storage import MemoryStorage

PAYLOADS = [bytes([65 + number]) * (7 + 5 * number) for number in range(5)]


def filled(storage: Storage) -> EventLog:
    log = EventLog(storage)
    for payload in PAYLOADS:
        log.append(payload, sync=True)
    return log


def records(storage: Storage) -> list[bytes]:
    return list(EventLog(storage).records())


def test_records_come_back_from_a_directory(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path / "run")
    filled(storage)
    storage.close()
    assert records(DirectoryStorage(tmp_path / "run")) == PAYLOADS


def test_a_directory_is_held_by_one_shepherd(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    with pytest.raises(
        RunLocked, match="is held by another Shepherd; stop it, or give this run another directory"
    ):
        DirectoryStorage(tmp_path)
    storage.close()
    DirectoryStorage(tmp_path).close()


def test_a_write_torn_at_any_byte_loses_only_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = DirectoryStorage(tmp_path)
    filled(storage)
    whole = storage.read(1)
    last = len(whole) - len(frame(PAYLOADS[-1]))
    caplog.set_level(logging.WARNING, "pcp.distributed.event_log")
    for length in range(last, len(whole)):
        storage.create(1, whole[:length])
        assert records(storage) == PAYLOADS[:-1]
        assert len(storage.read(1)) == last
    assert "cutting 1 bytes of a torn write off the event log" in caplog.text
    storage.close()


def test_zeros_after_a_power_failure_are_cut_off(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    filled(storage)
    storage.append(1, bytes(100))
    log = EventLog(storage)
    assert list(log.records()) == PAYLOADS
    log.append(b"next", sync=True)
    assert records(storage) == [*PAYLOADS, b"next"]
    storage.close()


def test_any_flipped_bit_before_the_last_record_is_noticed() -> None:
    whole = MAGIC + b"".join(frame(payload) for payload in PAYLOADS)
    random = Random(5)
    noticed = 0
    for _ in range(300):
        position = random.randrange(len(MAGIC), len(whole) - len(frame(PAYLOADS[-1])))
        damaged = bytearray(whole)
        damaged[position] ^= 1 << random.randrange(8)
        try:
            found, _ = scan(bytes(damaged))
        except CorruptEventLog:
            noticed += 1
        else:
            assert list(found) == PAYLOADS[: len(found)]
            assert len(found) < len(PAYLOADS)
    assert noticed > 200


def test_damage_in_the_middle_is_no_torn_write() -> None:
    whole = bytearray(MAGIC + b"".join(frame(payload) for payload in PAYLOADS))
    whole[len(MAGIC) + len(frame(PAYLOADS[0])) + 9] ^= 1
    with pytest.raises(
        CorruptEventLog, match=r"record 1 of the event log, at byte 23 of .* yet sound records follow"
    ):
        scan(bytes(whole))


def test_another_file_is_not_an_event_log() -> None:
    with pytest.raises(CorruptEventLog, match="the event log begins with b'#!/bin/s', expected b'PCPLOG01'"):
        scan(b"#!/bin/sh\n")


def test_a_full_disk_leaves_the_log_readable() -> None:
    disk = Disk(Random(3))
    storage = MemoryStorage(disk)
    log = filled(storage)
    disk.full = True
    for _ in range(3):
        with pytest.raises(EventLogFull, match=r"no room for a record of the event log: .*No space left"):
            log.append(b"late" * 10, sync=True)
        assert records(storage) == PAYLOADS
    disk.full = False
    log.append(b"late" * 10, sync=True)
    assert records(storage) == [*PAYLOADS, b"late" * 10]


def test_a_failing_disk_ends_the_log() -> None:
    disk = Disk(Random(3))
    storage = MemoryStorage(disk)
    log = filled(storage)
    disk.fail_next_sync = True
    with pytest.raises(
        EventLogWriteFailed, match=r"could not be written \(.*Input/output error\); it is intact up to"
    ) as failed:
        log.append(b"lost" * 10, sync=True)
    assert not isinstance(failed.value, EventLogFull)
    with pytest.raises(EventLogWriteFailed, match="the event log already failed"):
        log.append(b"refused", sync=True)
    assert records(storage) == PAYLOADS


def test_a_full_disk_in_compaction_leaves_the_old_segment() -> None:
    disk = Disk(Random(3))
    storage = MemoryStorage(disk)
    log = filled(storage)
    disk.full = True
    with pytest.raises(EventLogFull, match="No space left"):
        log.compact(b"snapshot")
    assert records(storage) == PAYLOADS
    disk.full = False
    log.append(b"after", sync=False)
    assert records(storage) == [*PAYLOADS, b"after"]


def test_what_is_left_of_a_segment_that_had_no_room_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    log = filled(DirectoryStorage(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(EventLogWriteFailed):
            log.compact(b"snapshot")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events-000001.log", "lock"]


def test_compaction_leaves_the_snapshot_and_what_follows(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    log = filled(storage)
    log.compact(b"snapshot")
    log.append(b"after", sync=False)
    assert storage.segments() == (2,)
    assert records(storage) == [b"snapshot", b"after"]
    storage.close()


def test_a_crash_between_the_two_steps_of_compaction_is_cleaned_up(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    filled(storage)
    storage.create(2, MAGIC + frame(b"snapshot"))
    assert records(storage) == [b"snapshot"]
    assert storage.segments() == (2,)
    storage.close()


@pytest.mark.parametrize("seed", range(50))
def test_what_was_synced_survives_a_power_failure(seed: int) -> None:
    random = Random(seed)
    disk = Disk(random)
    storage = MemoryStorage(disk)
    log = EventLog(storage)
    written: list[bytes] = []
    synced = 0
    for number in range(random.randint(1, 20)):
        sync = random.random() < 0.3
        disk.tear_next = random.random() < 0.05
        payload = random.randbytes(random.randint(1, 30))
        try:
            log.append(payload, sync)
        except PowerCut:
            break
        storage.settle()
        written.append(payload)
        synced = number + 1 if sync else synced
    storage.cut_power()
    found = records(storage)
    assert found == written[: len(found)]
    assert len(found) >= synced
