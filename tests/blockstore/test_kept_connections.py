"""One connection for many blocks of a host, and what becomes of it when its server has ended it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.blockstore import BlockNotFoundError, read_block
from penstock.blockstore.reading._readahead import Readahead
from penstock.blockstore.reading._remote import fetch_from_host
from penstock.blockstore.reading.access import BlockAccess
from penstock.blockstore.reading.fetch import ANSWER, BlockNotServedError, fetch
from penstock.wal import stamp_record
from penstock.wire import TAG_BYTES, ApplicationLink
from penstock.wire.messages import MemoryPlace, ReceivedBlockInfo
from tests.blockstore.peers import SECRET
from tests.blockstore.test_server_limits import WAIT_S, serving
from tests.wire.between import Between, Line, Way

SIZE = 100_000
STEP = 997
WHOLE = ANSWER.size + TAG_BYTES + 64 + SIZE


@pytest.fixture
def between() -> Iterator[Callable[..., Between]]:
    made: list[Between] = []

    def make(address: tuple[str, int], **ways: Way) -> Between:
        made.append(Between(address, **ways))
        return made[-1]

    yield make
    for one in made:
        one.close()


def make_blocks(folder: Path, count: int, size: int = SIZE) -> list[ReceivedBlockInfo]:
    """Write blocks whose bytes are their number, each in a memory file of its own."""
    blocks = []
    for number in range(count):
        attempt = f"{number:032x}"
        record = bytearray(64) + bytes([number]) * size
        stamp_record(memoryview(record), 1, size, number)
        path = folder / f"penstock-app-1-{attempt}"
        path.write_bytes(record)
        # Where the reader is there is no such file.
        memory = MemoryPlace(str(path), 0, len(record))
        name = f"input-3-{number}"
        blocks.append(ReceivedBlockInfo(3, name, 1, size, attempt, "h", number, memory, None))
    return blocks


def bytes_of(number: int, size: int = SIZE) -> bytes:
    return bytes([number]) * size


def cut_after(count: int) -> Way:
    """Pass so many bytes on, a first answer and what is left, and end the connection."""

    def cut(_: Between, line: Line) -> None:
        for part in (WHOLE, count - WHOLE):
            for begin in range(0, part, STEP):
                line.give(line.take(min(STEP, part - begin)))
        line.cut()

    return cut


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reader be on another host than the files."""
    monkeypatch.setattr("penstock.blockstore.reading._readahead._is_here", lambda info: False)


def test_one_connection_serves_many_fetches(
    tmp_path: Path, between: Callable[..., Between]
) -> None:
    blocks = make_blocks(tmp_path, 3)
    with serving(tmp_path) as address:
        middle = between(address)
        for number, block in enumerate(blocks):
            assert bytes(fetch(middle.address, SECRET, block, WAIT_S)) == bytes_of(number)
        assert middle.connections == 1
        # What is not there is told, and harms none of the others.
        gone = msgspec.structs.replace(blocks[0], sequence=77)
        with pytest.raises(BlockNotServedError):
            fetch(middle.address, SECRET, gone, WAIT_S)
        assert bytes(fetch(middle.address, SECRET, blocks[1], WAIT_S)) == bytes_of(1)


def test_a_process_with_another_secret_gets_no_connection_that_was_kept(tmp_path: Path) -> None:
    (block,) = make_blocks(tmp_path, 1)
    with serving(tmp_path) as address:
        fetch(address, SECRET, block, WAIT_S)
        with pytest.raises(Exception, match="secret"):
            fetch(address, os.urandom(32), block, WAIT_S)


@pytest.mark.parametrize("sent", [WHOLE, WHOLE + STEP, WHOLE + SIZE // 2])
def test_a_connection_that_its_server_has_ended_is_made_anew(
    tmp_path: Path, between: Callable[..., Between], sent: int
) -> None:
    blocks = make_blocks(tmp_path, 2)
    with serving(tmp_path) as address:
        middle = between(address, to_client=cut_after(sent))
        for number, block in enumerate(blocks):
            assert bytes(fetch(middle.address, SECRET, block, WAIT_S)) == bytes_of(number)
        assert middle.connections == 2


def test_a_forked_process_makes_its_own_connection(
    tmp_path: Path, between: Callable[..., Between]
) -> None:
    blocks = make_blocks(tmp_path, 2)
    with serving(tmp_path) as address:
        middle = between(address)
        fetch(middle.address, SECRET, blocks[0], WAIT_S)
        if (child := os.fork()) == 0:
            same = bytes(fetch(middle.address, SECRET, blocks[1], WAIT_S)) == bytes_of(1)
            os._exit(0 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bytes(fetch(middle.address, SECRET, blocks[1], WAIT_S)) == bytes_of(1)
        assert middle.connections == 2


@pytest.mark.usefixtures("elsewhere")
def test_blocks_of_a_host_come_together_and_each_is_its_own(
    tmp_path: Path, between: Callable[..., Between]
) -> None:
    blocks = make_blocks(tmp_path, 5)
    ahead = Readahead(blocks)
    with serving(tmp_path) as address:
        middle = between(address)
        access = BlockAccess({"h": middle.address}, ApplicationLink(SECRET))
        first = fetch_from_host(blocks[0], access, ahead=ahead)
    # The server is gone; what came with the first block is here.
    found = [first, *(fetch_from_host(block, access, ahead=ahead) for block in blocks[1:])]
    assert [bytes(one) for one in found] == [bytes_of(number) for number in range(5)]


@pytest.mark.usefixtures("elsewhere")
def test_one_that_is_gone_harms_none_of_those_it_was_asked_for_with(tmp_path: Path) -> None:
    blocks = make_blocks(tmp_path, 4)
    os.unlink(tmp_path / f"penstock-app-1-{blocks[2].attempt}")
    ahead = Readahead(blocks)
    with serving(tmp_path) as address:
        access = BlockAccess({"h": address}, ApplicationLink(SECRET), fetch_timeout_s=WAIT_S)
        for number in (0, 1, 3):
            payload = fetch_from_host(blocks[number], access, ahead=ahead)
            assert bytes(payload) == bytes_of(number)
        with pytest.raises(BlockNotFoundError), read_block(blocks[2], access, ahead):
            pass


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("sent", [2 * WHOLE - SIZE // 2, 3 * WHOLE])
def test_a_connection_that_breaks_after_the_first_of_several_costs_no_block(
    tmp_path: Path, between: Callable[..., Between], sent: int
) -> None:
    blocks = make_blocks(tmp_path, 5)
    ahead = Readahead(blocks)
    with serving(tmp_path) as address:
        middle = between(address, to_client=cut_after(sent))
        access = BlockAccess({"h": middle.address}, ApplicationLink(SECRET))
        for number, block in enumerate(blocks):
            payload = fetch_from_host(block, access, ahead=ahead)
            assert bytes(payload) == bytes_of(number)


@pytest.mark.usefixtures("elsewhere")
def test_blocks_that_are_read_in_any_order_are_the_right_ones(tmp_path: Path) -> None:
    blocks = make_blocks(tmp_path, 6)
    ahead = Readahead(blocks)
    with serving(tmp_path) as address:
        access = BlockAccess({"h": address}, ApplicationLink(SECRET))
        for number in (3, 0, 5, 5, 1, 2, 4):
            payload = fetch_from_host(blocks[number], access, ahead=ahead)
            assert bytes(payload) == bytes_of(number)


@pytest.mark.usefixtures("elsewhere")
def test_what_is_asked_for_together_is_bounded(tmp_path: Path) -> None:
    """I7: by bytes for large blocks, by number for small ones; a large one goes alone."""
    (one,) = make_blocks(tmp_path, 1)

    def together(size: int) -> int:
        blocks = [
            msgspec.structs.replace(one, block_id=f"input-3-{number}", num_bytes=size)
            for number in range(1000)
        ]
        return len(Readahead(blocks).next_of_host(blocks[0]))

    assert together(16 << 20) == 0
    assert together(1 << 20) == 7
    assert together(100) == 32


def test_blocks_that_are_here_or_on_another_host_are_not_asked_for(tmp_path: Path) -> None:
    one, two, three = make_blocks(tmp_path, 3)
    assert Readahead([one, two]).next_of_host(one) == []
    away = MemoryPlace("/dev/shm/penstock-app-1-away", 0, SIZE)
    two = msgspec.structs.replace(two, memory=away)
    other = msgspec.structs.replace(three, memory=away, host="other")
    assert Readahead([one, two, other]).next_of_host(one) == [two]
