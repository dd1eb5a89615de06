#!/bin/sh
# knx 2.5.4 (npm, KNX for Node): a difference in percent is a hundred times as much, and a time of day that has no
# day of the week gets one: Sunday; on a Sunday, a time of this day is one of a week later.
#
# DPT 8.010 counts hundredths of a percent, and the day of DPT 10.001 is 1 to 7 from Monday on, or 0 for none (KNX
# 03_07_02, "Datapoint Types", 3.9 and 3.11). The library has the unit % beside 8.010 and not the hundredths, so
# that a meter whose phases differ by 30.04 % shows 3004, and what is set as 5 % is sent as 0.05 %. Of a time it
# makes a Date near now, takes 0 and 7 for days counted from Sunday, and sends back a day that was not there: a
# clock that is set by it has the wrong day. xknx 4.0.0 for Python has 30.04 and no day. Seen (the time was
# 13:59:59, read on Monday, November 30, and on Sunday, November 29, 2026):
#
#   8.010, 0bbc: 3004 %; 5 % is sent as 0005
#   8.010, 0bbc, by xknx: 30.04; 5 % is sent as 01f4
#   10.001, no day, read on Monday: Sun Nov 29 2026, 13:59:59; sent again with day 7
#   10.001, no day, read on Sunday: Sun Nov 29 2026, 13:59:59; sent again with day 7
#   10.001, Sunday, read on Monday: Sun Dec 06 2026, 13:59:59; sent again with day 7
#   10.001, Sunday, read on Sunday: Sun Dec 06 2026, 13:59:59; sent again with day 7
#   10.001, no day, by xknx: 13:59:59, day None; sent again with day 0
#
# Needs python3, node and npm. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q xknx==4.0.0
cd "$work"
npm install --no-audit --no-fund --silent knx@2.5.4
cat > look.js <<'END'
const library = require("knx/src/dptlib");

const read = (type, hex) => library.fromBuffer(Buffer.from(hex, "hex"), library.resolve(type));
const sent = (type, value) => {
  const packet = {};
  library.populateAPDU(value, packet, type);
  return packet.data.toString("hex");
};
const Clock = Date;
const setClock = (day) => {
  const now = new Clock(2026, 10, day, 9).getTime();
  global.Date = class Date extends Clock {
    constructor(...parts) {
      super(...(parts.length ? parts : [now]));
    }
  };
};

const unit = library.resolve("DPT8.010").subtype.unit;
console.log(`8.010, 0bbc: ${read("DPT8.010", "0bbc")} ${unit}; 5 % is sent as ${sent("DPT8.010", 5)}`);
for (const [text, hex] of [["no day", "0d3b3b"], ["Sunday", "ed3b3b"]]) {
  for (const [name, day] of [["Monday", 30], ["Sunday", 29]]) {
    setClock(day);
    const date = read("DPT10.001", hex);
    const again = parseInt(sent("DPT10.001", date).slice(0, 2), 16) >> 5;
    const seen = `${date.toDateString()}, ${date.toTimeString().slice(0, 8)}`;
    console.log(`10.001, ${text}, read on ${name}: ${seen}; sent again with day ${again}`);
  }
}
END
cat > look.py <<'END'
from xknx.dpt import DPTArray, DPTPercentV16, DPTTime

value = DPTPercentV16.from_knx(DPTArray((0x0B, 0xBC)))
print(f"8.010, 0bbc, by xknx: {value}; 5 % is sent as {bytes(DPTPercentV16.to_knx(5).value).hex()}")
time = DPTTime.from_knx(DPTArray((0x0D, 59, 59)))
again = DPTTime.to_knx(time).value[0] >> 5
clock = f"{time.hour}:{time.minutes}:{time.seconds}"
day = time.day and (time.day.value or None)
print(f"10.001, no day, by xknx: {clock}, day {day}; sent again with day {again}")
END
{ node look.js; "$work/venv/bin/python" look.py; } > found
{ sed -n 1p found; grep 8.010.*xknx found; sed -n 2,5p found; grep 10.001.*xknx found; } | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
