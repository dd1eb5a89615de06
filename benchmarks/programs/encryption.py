"""The segment log with encryption beside without: bytes forced to the same disk per second.

As `segment_log` does it: slots of blocks are appended, and segments removed that are needed no
more, whose files are used again; a first part is left out. Then what was written is read back and
decrypted. Both ways take turns; the median counts.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from statistics import median

from benchmarks.programs._program import tell
from benchmarks.programs._slots import touched
from penstock.wal import (
    RECORD_HEADER_SIZE,
    EncryptionKey,
    LogOptions,
    LogWriter,
    parse_record,
    segment_path,
)

ROUNDS = 5
TOTAL = 512 << 20
SIZE = 8 << 20


def rates(folder, slot, cipher):
    """Return the rates of writing and of reading, in bytes per second."""
    folder = os.path.join(folder, "log")
    writer = LogWriter.create(folder, options=LogOptions(), cipher=cipher)
    length = SIZE - RECORD_HEADER_SIZE - 64  # So that the tag takes no page of its own.

    def write():
        places = []
        for _ in range(0, TOTAL, SIZE):
            places.append(writer.append_slot(1, slot, length))
            if places[-1].segment > places[0].segment:
                writer.remove_segments(range(1, places[-1].segment))
                places = places[-1:]
        return places

    try:
        write()
        begun = time.monotonic()
        places = write()
        written = time.monotonic()
        for place in places:
            with open(segment_path(folder, place.segment), "rb") as file:
                file.seek(place.offset)
                record = memoryview(file.read(place.length))
            assert (
                parse_record(record, cipher=cipher)[:1000]
                == parse_record(slot, verify=False)[:1000]
            )
        ended = time.monotonic()
    finally:
        writer.close()
        shutil.rmtree(folder)
    return TOTAL / (written - begun), len(places) * SIZE / (ended - written)


def main():
    parent = json.loads(sys.argv[1])["folder"]
    folder = tempfile.mkdtemp(prefix="encryption-", dir=parent)
    slot = touched(SIZE)
    found = {"clear": [], "encrypted": []}
    try:
        for _ in range(ROUNDS):
            for name, taken in found.items():
                cipher = EncryptionKey.generate().cipher("") if name == "encrypted" else None
                taken.append(rates(folder, slot, cipher))
                written, read = (rate / 1e6 for rate in taken[-1])
                tell({"progress": f"{name}: {written:,.0f} MB/s, read {read:,.0f} MB/s"})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = {}
    for name, taken in found.items():
        figures[f"{name}_mb_per_s"] = median(written for written, _ in taken) / 1e6
        figures[f"{name}_read_mb_per_s"] = median(read for _, read in taken) / 1e6
    for kind in ("mb_per_s", "read_mb_per_s"):
        share = figures[f"encrypted_{kind}"] / figures[f"clear_{kind}"]
        figures["share_" + kind.removesuffix("mb_per_s") + "of_clear"] = share
    tell({"figures": figures})


main()
