#!/bin/sh
# gt06 1.0.12 (npm, a parser of what GT06 trackers of vehicles send): of several positions that come together each is the last:
# the way through the tunnel is one place, as often as there were positions.
#
# A tracker keeps its positions while it has no network, and sends them one behind the other, so a server reads many at once. The
# library keeps them in a buffer, one entry a message, for programs to go through; all entries of a packet are one
# object, which each message is written into. Parsed one by one, all are right. The messages have their CRC-16/X-25. Seen (time,
# latitude and longitude of each):
#
#   one by one: 08:00:00 52.52 13.405, 08:00:30 52.53 13.415, 08:01:00 52.54 13.425
#   together: 08:01:00 52.54 13.425, 08:01:00 52.54 13.425, 08:01:00 52.54 13.425
#   login and position: location, location
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts gt06@1.0.12 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const Gt06 = require('gt06');

function crc(bytes) {
  let sum = 0xffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ 0x8408 : sum >>> 1;
  }
  return ~sum & 0xffff;
}

function message(protocol, content, serial) {
  const middle = [content.length + 5, protocol, ...content, serial >> 8, serial & 255];
  const sum = crc(middle);
  return Buffer.from([0x78, 0x78, ...middle, sum >> 8, sum & 255, 0x0d, 0x0a]);
}

function position(minute, second, latitude, longitude, serial) {
  const content = Buffer.alloc(26);
  content.set([26, 7, 1, 8, minute, second, 0xc8]);
  content.writeUInt32BE(Math.round(latitude * 1800000), 7);
  content.writeUInt32BE(Math.round(longitude * 1800000), 11);
  content[15] = 50;
  content.writeUInt16BE(0x1400, 16); // Positioned, east, north.
  content.writeUInt16BE(262, 18);
  return message(0x12, [...content], serial);
}

function read(...packets) {
  const tracker = new Gt06();
  packets.forEach(packet => tracker.parse(packet));
  return tracker.msgBuffer;
}

const shown = found => found.map(one => `${one.fixTime.slice(11, 19)} ${one.lat} ${one.lon}`).join(', ');
const way = [position(0, 0, 52.52, 13.405, 1), position(0, 30, 52.53, 13.415, 2), position(1, 0, 52.54, 13.425, 3)];
const one = way.flatMap(packet => read(packet));
console.log(`one by one: ${shown(one)}`);
console.log(`together: ${shown(read(Buffer.concat(way)))}`);
const login = message(0x01, [0x01, 0x23, 0x45, 0x67, 0x89, 0x01, 0x23, 0x45], 1);
console.log(`login and position: ${read(Buffer.concat([login, way[0]])).map(one => one.event.string).join(', ')}`);
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
