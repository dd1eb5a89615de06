#!/bin/sh
# seisplotjs 3.2.2 (npm, records of earthquakes): a station whose clock was off keeps its wrong times though the record
# says by how much, and a time that has microseconds is up to half a millisecond late.
#
# A record of miniSEED 2 has a correction in ten-thousandths of a second, and a bit that says whether it was applied to
# the start; where it was not, it must be added (SEED manual 2.4, chapter 8, fixed section of data header, fields 12 and
# 16). The library reads it and adds it never, and rounds ten-thousandths to milliseconds; the microseconds (blockette
# 1001), which are to be added, too, come after the time was made. ObsPy 1.5.1 applies all. Seen (the record; each's
# start at 12:00:00):
#
#   correction 0: seisplotjs 00.124, obspy 00.123456
#   correction 5000, not applied: seisplotjs 00.124, obspy 00.623456
#   correction 5000, applied: seisplotjs 00.124, obspy 00.123456
#
# Needs python3 and Node 20 (the library asks for a browser, of which classes without content stand in). Ends with 0
# while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q obspy==1.5.1 numpy==2.4.6
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts seisplotjs@3.2.2 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.mjs <<'END'
import fs from 'fs';

globalThis.HTMLElement = class {};
globalThis.HTMLDivElement = class {};
globalThis.customElements = { define() {}, get() {} };
globalThis.document = { createElement: () => ({}), head: {} };
globalThis.window = globalThis;
const { miniseed } = await import('seisplotjs');
for (const name of process.argv.slice(2)) {
  const { buffer } = new Uint8Array(fs.readFileSync(name));
  const [record] = miniseed.parseDataRecords(buffer);
  console.log(record.header.startTime.toUTC().toISO().slice(17, -1));
}
END
cat > look.py <<'END'
import io
import pathlib
import struct
import subprocess

import numpy
import obspy

CASES = {"correction 0": (0, 0), "correction 5000, not applied": (5000, 0), "correction 5000, applied": (5000, 2)}
trace = obspy.Trace(numpy.arange(10, dtype="int32"), {"sampling_rate": 40.0})
trace.stats.starttime = obspy.UTCDateTime("2026-11-30T12:00:00.123456")
memory = io.BytesIO()
obspy.Stream([trace]).write(memory, format="MSEED", encoding="STEIM2", reclen=512)
for name, (correction, flag) in CASES.items():
    data = bytearray(memory.getvalue())
    data[36] |= flag
    data[40:44] = struct.pack(">i", correction)
    pathlib.Path(name).write_bytes(data)
answers = subprocess.run(["node", "look.mjs", *CASES], check=True, capture_output=True, text=True).stdout.split()
for name, answer in zip(CASES, answers, strict=True):
    known = obspy.read(name)[0].stats.starttime.strftime("%S.%f")
    print(f"{name}: seisplotjs {answer}, obspy {known}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
