"""Options, sync policies and statistics of a log."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class SyncPolicy(enum.Enum):
    """What must have happened before an append returns.

    `NONE`: the bytes are with the operating system; they survive the death of any process, not
    of the host. `INTERVAL`: as `NONE`, and a thread syncs every `LogOptions.sync_interval_s`, so
    that a power loss takes at most about that much. `ALWAYS`: the bytes are forced to the disk.
    """

    NONE = "none"
    INTERVAL = "interval"
    ALWAYS = "always"


@dataclass(frozen=True)
class LogOptions:
    """How a log is written.

    Attributes:
        segment_size: Bytes of a segment file, preallocated; a larger single append gets a
            segment of its own size.
        alignment: Records begin at multiples of this many bytes: a power of two, at least 64.
            Direct I/O needs a multiple of 4096.
        sync: When an append counts as committed.
        sync_interval_s: Seconds between syncs of the `INTERVAL` policy.
        roll_age_s: An append to a segment older than this begins a new one; None: by size only.
        direct: Write past the page cache where file system and alignment allow it.
        max_append_size: Largest single append in bytes, headers and padding included.
        stall_timeout_s: Longest time an append waits for its turn at the disk.
    """

    segment_size: int = 256 << 20
    alignment: int = 4096
    sync: SyncPolicy = SyncPolicy.ALWAYS
    sync_interval_s: float = 0.05
    roll_age_s: float | None = None
    direct: bool = True
    max_append_size: int = (1 << 30) + (1 << 16)
    stall_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if self.alignment < 64 or self.alignment & (self.alignment - 1):
            raise ValueError(f"alignment={self.alignment} is not a power of two of at least 64")
        if self.segment_size < 4 * self.alignment:
            raise ValueError(
                f"segment_size={self.segment_size} is less than four records of "
                f"alignment={self.alignment}"
            )
        for name in ("sync_interval_s", "roll_age_s", "max_append_size", "stall_timeout_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value} is not above 0")


@dataclass(frozen=True)
class LogStatistics:
    """What a writer has done since it was created.

    Attributes:
        segment: Number of the open segment, None right after a failed write.
        segments_created: Segments begun by this writer.
        segments_abandoned: Segments given up after a failed write or sync.
        segments_removed: Segments removed through this writer.
        records: Records committed to the policy.
        bytes_appended: Their bytes in the segments, headers and padding included.
        writes: Writes that carried them: with group commit fewer than appends.
        syncs: Forced writes and syncs.
        sync_seconds_total: Seconds spent in them.
        sync_seconds_max: The slowest of them.
        failures: Failed writes and syncs.
        last_sequence: Sequence of the last record written.
        committed_sequence: Sequence up to which records are committed to the policy.
        free_bytes: Free bytes on the file system, -1 when not known.
        direct: Whether records go past the page cache.
    """

    segment: int | None
    segments_created: int
    segments_abandoned: int
    segments_removed: int
    records: int
    bytes_appended: int
    writes: int
    syncs: int
    sync_seconds_total: float
    sync_seconds_max: float
    failures: int
    last_sequence: int
    committed_sequence: int
    free_bytes: int
    direct: bool
