"""Blocks that a host's block server copies to another one, because the tracker asks for that."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.blockstore import (
    BlockAccess,
    BlockNotFoundError,
    read_block,
)
from penstock.blockstore.reading._remote import fetch_from_host
from penstock.blockstore.server import _copying, replica_service
from penstock.blockstore.server._copying import BlockCopier
from penstock.blockstore.server._files import ApplicationFiles
from penstock.blockstore.server.peer_link import PeerLink
from penstock.wal import EncryptionKey, segment_path
from penstock.wire import ApplicationLink, TlsIdentity, WireError
from penstock.wire.messages import (
    BlocksCopied,
    BlockServerAt,
    CopiesAt,
    CopyBlocks,
    ReceivedBlockInfo,
    ReplicaPlace,
    SegmentPlace,
    StopBlockServer,
)
from tests.blockstore.peers import SECRET
from tests.blockstore.test_replicas import Driver, OtherHost, copy_of, put, store_of
from tests.blockstore.test_server import ATTEMPT, WAIT_S, Host, info


@contextmanager
def two_hosts(folder: Path, tls: TlsIdentity | None = None) -> Iterator[tuple[Host, OtherHost]]:
    """Make a host whose block server is a process, and one that takes copies."""
    host = Host(folder, tls)
    other = OtherHost(folder / "other", tls, host.secret)
    try:
        yield host, other
    finally:
        other.stop()
        host.close()


def ask(host: Host, other: OtherHost, *blocks: ReceivedBlockInfo) -> BlocksCopied:
    """Have a host copy blocks, and return its answer."""
    tracker = host.tracker
    number = len(tracker.copied) + 1
    tracker.send(CopyBlocks(number, other.name, other.address, blocks))
    tracker.wait_for(lambda: len(tracker.copied) == number)
    assert tracker.copied[-1].request == number
    return tracker.copied[-1]


@pytest.mark.parametrize("with_tls", [False, True])
def test_blocks_are_copied_from_memory_and_from_the_log(tmp_path: Path, with_tls: bool) -> None:
    with two_hosts(tmp_path, TlsIdentity.make() if with_tls else None) as (host, other):
        payload = os.urandom(200_000)
        in_log = host.segment_block(payload)
        in_memory = host.memory_block(payload[:100_000])
        # Its slot has another block by now.
        both = msgspec.structs.replace(in_log, memory=in_memory.memory)
        host.start()
        answer = ask(host, other, in_log, in_memory, both)
        assert (answer.reason, answer.is_refused) == ("", False)
        places = [place for place in answer.places if place is not None]
        assert [place.host for place in places] == ["other"] * 3
        assert other.payloads() == [payload, payload[:100_000], payload]


def test_what_is_not_there_whole_is_named_and_the_others_are_copied(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as (host, other):
        good = host.segment_block(b"good")
        gone = msgspec.structs.replace(
            good, block_id="input-3-7", segment=SegmentPlace(good.segment.folder, 99, 0, 68)
        )
        foreign = msgspec.structs.replace(
            good, block_id="input-3-8", segment=SegmentPlace("/etc", 1, 0, 68)
        )
        damaged = host.memory_block(b"x" * 1000)
        with host.memory_path().open("r+b") as file:
            file.seek(5000)
            file.write(b"y")
        nowhere = info(b"", 1)
        host.start()
        answer = ask(host, other, gone, good, damaged, foreign, nowhere, good)
        assert [place is not None for place in answer.places] == [False, True] + [False] * 3 + [
            True
        ]
        assert not answer.is_refused
        assert "input-3-1" in answer.reason
        assert other.payloads() == [b"good", b"good"]


def test_a_host_that_takes_none_is_told_apart_from_a_block_that_is_not_there(
    tmp_path: Path,
) -> None:
    with two_hosts(tmp_path) as (host, other):
        block = host.segment_block(b"good")
        host.start()
        other.logs.release([ATTEMPT], [])
        answer = ask(host, other, block, block)
        assert (answer.places, answer.is_refused) == ((None,), True)
        assert "was released" in answer.reason
        other.stop()
        answer = ask(host, other, block, block)
        assert (answer.places, answer.is_refused) == ((None,), True)
        assert "no copies can be made on other" in answer.reason


def test_who_knows_the_first_places_alone_finds_the_copy_that_was_made_since(
    tmp_path: Path,
) -> None:
    """As a task of a batch that was made before."""
    with two_hosts(tmp_path) as (host, other):
        block = host.segment_block(payload := os.urandom(100_000))
        host.start()
        (place,) = ask(host, other, block).places
        assert place is not None
        host.kill()
        access = BlockAccess({}, host.launch.link, WAIT_S)
        with pytest.raises(WireError):
            fetch_from_host(block, access)
        host.tracker.copies = CopiesAt((place,))
        host.tracker.found = BlockServerAt(other.address, False)
        assert fetch_from_host(block, access) == payload
        # That host had lost one before.
        lost = msgspec.structs.replace(place, segment=SegmentPlace(place.segment.folder, 99, 0, 68))
        before = msgspec.structs.replace(block, replicas=(lost,))
        access = BlockAccess({other.name: other.address}, host.launch.link, WAIT_S)
        assert fetch_from_host(before, access) == payload


def test_a_copy_that_was_made_again_where_another_was_lost_is_found(tmp_path: Path) -> None:
    """Also by who knew the lost one, and has waited for the first host for all of its time."""
    with two_hosts(tmp_path) as (host, other):
        block = host.segment_block(payload := os.urandom(100_000))
        host.start()
        (place,) = ask(host, other, block).places
        assert place is not None
        host.kill()
        folder = f"{place.segment.folder}0"
        lost = ReplicaPlace("other", msgspec.structs.replace(place.segment, folder=folder), 0)
        host.tracker.copies = CopiesAt((place,))
        host.tracker.found = BlockServerAt(other.address, False)
        access = BlockAccess({"other": other.address}, host.launch.link, 0.001)
        assert fetch_from_host(msgspec.structs.replace(block, replicas=(lost,)), access) == payload


def test_it_ends_in_the_middle_of_a_copy_when_it_is_told_to(tmp_path: Path) -> None:
    """And copying keeps it from nothing else."""
    with two_hosts(tmp_path) as (host, _), socket.create_server(("127.0.0.1", 0)) as silent:
        block = host.segment_block(b"good")
        server = host.start()
        host.tracker.send(CopyBlocks(1, "silent", silent.getsockname(), (block,)))
        connection, _ = silent.accept()
        with connection:
            assert host.fetch(server, block) == b"good"
            host.tracker.send(StopBlockServer(False))
            host.wait_for_end()


# -- encrypted ---------------------------------------------------------------------------------


def test_an_encrypted_block_is_copied_as_it_is_and_read_by_who_has_the_key(
    tmp_path: Path,
) -> None:
    """From the receiver's log, from a copy, and from the copy of that."""
    key, mark = EncryptionKey.generate(), b"what nobody may find on a disk"
    second, third, fourth = (OtherHost(tmp_path / name) for name in ("b", "c", "d"))
    root = tmp_path / "a"
    root.mkdir()
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
        store_of(root, Driver(second), Path(memory), key) as (store, _),
    ):
        blocks = [put(store, number, [mark, os.urandom(100_000)]) for number in (1, 2)]
        of_receiver = BlockCopier(
            ApplicationFiles("app-1", memory, str(root)), ApplicationLink(SECRET)
        )
        there = [msgspec.structs.replace(one, memory=None, replicas=()) for one in blocks]
        from_log = copy(of_receiver, third, *there)
    from_copy = copy(copier(second), fourth, *map(copy_of, blocks))
    from_copy_of_log = copy(
        copier(third), fourth, *(as_on(*each) for each in zip(blocks, from_log, strict=True))
    )
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or mark not in path.read_bytes()
    for places in (from_log, from_copy, from_copy_of_log):
        for number, (block, place) in enumerate(zip(blocks, places, strict=True)):
            with_copy = msgspec.structs.replace(block, memory=None, segment=None, replicas=(place,))
            assert first_record(with_copy, BlockAccess(encryption=key)) == mark
            # From another host.
            servers = {host.name: host.address for host in (third, fourth)}
            access = BlockAccess(servers, ApplicationLink(SECRET), WAIT_S, encryption=key)
            cipher = key.cipher(f"blocks of {block.attempt}")
            assert mark in bytes(fetch_from_host(with_copy, access, cipher, cipher))
            # Another block's copy, and no key.
            swapped = msgspec.structs.replace(with_copy, replicas=(places[1 - number],))
            for wrong, with_key in ((swapped, key), (with_copy, EncryptionKey.generate())):
                with pytest.raises(BlockNotFoundError):
                    first_record(wrong, BlockAccess(encryption=with_key))
    for host in (second, third, fourth):
        host.stop()


def copier(host: OtherHost) -> BlockCopier:
    return BlockCopier(host.files, ApplicationLink(SECRET))


def copy(copier: BlockCopier, to: OtherHost, *blocks: ReceivedBlockInfo) -> list[ReplicaPlace]:
    answer = copier.copy(CopyBlocks(1, to.name, to.address, blocks))
    assert answer.reason == ""
    return [place for place in answer.places if place is not None]


def as_on(block: ReceivedBlockInfo, place: ReplicaPlace) -> ReceivedBlockInfo:
    return copy_of(msgspec.structs.replace(block, replicas=(place,)))


def first_record(block: ReceivedBlockInfo, access: BlockAccess) -> bytes:
    with read_block(block, access) as found:
        return next(iter(found.records()))


def test_after_a_minute_what_was_copied_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_hosts(tmp_path) as (host, other):
        block = host.segment_block(b"good")
        files = ApplicationFiles("app-1", str(host.memory), str(host.root))
        link = ApplicationLink(host.secret)
        monkeypatch.setattr(_copying, "_LONGEST_S", 0.0)
        message = CopyBlocks(5, other.name, other.address, (block, block))
        assert BlockCopier(files, link).copy(message) == BlocksCopied(5, ())
        monkeypatch.setattr(_copying, "_LONGEST_S", 60.0)
        slow = BlockCopier(files, link)
        keep = PeerLink.keep
        kept = threading.Event()

        def keep_one(self: PeerLink, *what: object) -> ReplicaPlace:
            if kept.is_set():
                slow.close()
            kept.set()
            return keep(self, *what)  # type: ignore[arg-type]

        monkeypatch.setattr(PeerLink, "keep", keep_one)
        answer = slow.copy(message)
        assert [place is not None for place in answer.places] == [True, False]
        assert slow.copy(message).places == ()


def test_nothing_is_sent_over_a_connection_that_stood_only_after_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_hosts(tmp_path) as (host, other):
        block = host.segment_block(b"good")
        copier = BlockCopier(
            ApplicationFiles("app-1", str(host.memory), str(host.root)),
            ApplicationLink(host.secret),
        )

        class SlowLink(PeerLink):
            def __init__(self, *what: Any) -> None:
                super().__init__(*what)
                copier.close()

        monkeypatch.setattr(_copying, "PeerLink", SlowLink)
        answer = copier.copy(CopyBlocks(1, other.name, other.address, (block, block)))
        assert (answer.places, answer.is_refused) == ((None,), True)
        assert other.payloads() == []


def test_a_log_of_copies_that_is_idle_is_closed_and_another_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_hosts(tmp_path) as (host, other):
        block = host.segment_block(b"good")
        host.start()
        first = ask(host, other, block).places[0]
        other.logs.close_idle()
        second = ask(host, other, block).places[0]
        monkeypatch.setattr(replica_service, "_IDLE_S", -1.0)
        other.logs.close_idle()
        third = ask(host, other, block).places[0]
        assert first is not None
        assert second is not None
        assert third is not None
        assert first.segment.folder == second.segment.folder != third.segment.folder
        size = os.path.getsize(segment_path(first.segment.folder, first.segment.segment))
        assert (
            size
            < 100_000
            < os.path.getsize(segment_path(third.segment.folder, third.segment.segment))
        )
        # What is named for release goes from a log that is closed as well.
        assert not other.logs.is_open(first.segment.folder)
