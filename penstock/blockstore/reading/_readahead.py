"""`Readahead`: what the blocks of a task have elsewhere, asked for together.

A request of an object store takes tens of milliseconds, whatever it brings, and a task may have
thousands of small blocks. So neighbours in a segment are one range, and ranges are asked for
several at a time. Nothing is asked for before the first block of the task is to be read there; then
the blocks that cannot be in memory on this host are, some MiB at a time.

Of another host the blocks that come next are asked for with the one that is to be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.blockstore.process_log import log_of
from penstock.files.addresses import is_on_objects, is_shared
from penstock.wal import WalError, locate, segment_path
from penstock.wire.messages import ReceivedBlockInfo, SegmentPlace

_WINDOW_BYTES = 16 << 20
_GAP_BYTES = 64 << 10
"""What is between two blocks and is read with them: less than a request takes in its time."""
_RANGE_BYTES = 4 << 20
_AT_ONCE = 16
_HOST_BLOCKS = 32
"""Blocks that a host is asked for at one time: their requests have room in what a socket holds."""
_HOST_BYTES = 8 << 20


class Readahead:
    """The blocks of one task, or of a part of it, which come in this order. For one thread.

    Args:
        infos: The blocks.
    """

    def __init__(self, infos: Sequence[ReceivedBlockInfo]) -> None:
        self._infos = infos
        self._windows: dict[tuple[str, int, int], tuple[SegmentPlace, ...]] | None = None
        self._records: dict[tuple[str, int, int], memoryview] = {}
        self._at = {info.block_id: at for at, info in enumerate(infos)}
        self._payloads: dict[str, memoryview] = {}

    def take_fetched(self, info: ReceivedBlockInfo) -> memoryview | None:
        """Return the payload of a block that came with another one of its host."""
        return self._payloads.pop(info.block_id, None)

    def fetched(self, info: ReceivedBlockInfo, payload: memoryview) -> None:
        """Keep the payload of a block until it is its turn."""
        self._payloads[info.block_id] = payload

    def next_of_host(self, info: ReceivedBlockInfo) -> list[ReceivedBlockInfo]:
        """Return the blocks after one that are to be fetched with it, which is on another host."""
        # A read in another order takes none of them.
        self._payloads.clear()
        found: list[ReceivedBlockInfo] = []
        size = info.num_bytes
        for other in self._infos[self._at.get(info.block_id, len(self._infos)) + 1 :]:
            size += other.num_bytes
            if len(found) == _HOST_BLOCKS or size > _HOST_BYTES or other.host != info.host:
                break
            if _is_here(other):
                break
            found.append(other)
        return found

    def take(self, place: SegmentPlace) -> memoryview | None:
        """Return the record of a block as the store has it; None: ask for it by itself."""
        if self._windows is None:
            self._windows = dict(_windows(self._infos))
        key = _key(place)
        if key not in self._records and key in self._windows:
            window = self._windows[key]
            self._records = _read(window)
            # Whatever could not be read is asked for by itself, and says why.
            for read in window:
                del self._windows[_key(read)]
        return self._records.pop(key, None)


def _is_here(info: ReceivedBlockInfo) -> bool:
    places = [info.memory.path] if info.memory is not None else []
    if info.segment is not None:
        places.append(info.segment.folder)
    return any(is_shared(place) or os.path.exists(place) for place in places)


def _key(place: SegmentPlace) -> tuple[str, int, int]:
    return place.folder, place.segment, place.offset


def _windows(
    infos: Iterable[ReceivedBlockInfo],
) -> Iterable[tuple[tuple[str, int, int], tuple[SegmentPlace, ...]]]:
    """Yield the place of each block that is to be read, with those it is read with."""
    window: dict[tuple[str, int, int], SegmentPlace] = {}
    size = 0
    for info in infos:
        place = info.segment
        if place is None or not is_on_objects(place.folder):
            continue
        if info.memory is not None and os.path.exists(info.memory.path):
            continue
        if window and size + place.length > _WINDOW_BYTES:
            yield from _shared(window)
            window, size = {}, 0
        window[_key(place)] = place
        size += place.length
    yield from _shared(window)


def _shared(
    window: dict[tuple[str, int, int], SegmentPlace],
) -> Iterable[tuple[tuple[str, int, int], tuple[SegmentPlace, ...]]]:
    # The log and not the attempt's folder: attempts that share one have neighbours in it.
    places = sorted(window.values(), key=lambda at: (log_of(at.folder), at.segment, at.offset))
    return ((key, tuple(places)) for key in window) if len(places) > 1 else ()


def _read(places: Sequence[SegmentPlace]) -> dict[tuple[str, int, int], memoryview]:
    ranges: list[list[SegmentPlace]] = []
    for place in places:
        if not ranges or not _is_neighbour(ranges[-1], place):
            ranges.append([])
        ranges[-1].append(place)
    with ThreadPoolExecutor(min(_AT_ONCE, len(ranges)), "penstock-readahead") as threads:
        return {
            _key(place): record
            for found in threads.map(_read_range, ranges)
            for place, record in found
        }


def _is_neighbour(run: Sequence[SegmentPlace], place: SegmentPlace) -> bool:
    first, last = run[0], run[-1]
    is_same = (log_of(first.folder), first.segment) == (log_of(place.folder), place.segment)
    is_near = place.offset - last.offset - last.length <= _GAP_BYTES
    return is_same and is_near and place.offset + place.length - first.offset <= _RANGE_BYTES


def _read_range(run: Sequence[SegmentPlace]) -> list[tuple[SegmentPlace, memoryview]]:
    begin, end = run[0].offset, run[-1].offset + run[-1].length
    try:
        fs, folder = locate(log_of(run[0].folder))
        found = fs.read_range(segment_path(folder, run[0].segment), begin, end - begin)
    except (OSError, WalError):
        return []
    records = [
        (place, found[place.offset - begin : place.offset - begin + place.length]) for place in run
    ]
    if 2 * sum(place.length for place in run) < end - begin:
        # What is between is not to stay as long as they do.
        return [(place, memoryview(bytes(record))) for place, record in records]
    return records
