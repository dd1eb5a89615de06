#!/bin/sh
# statsd-parser 0.0.4 (npm, 92,000 downloads a month): a count of one in ten that comes in two pieces of a TCP stream is
# counted as one, when the first piece ends at its type; a rate that is cut is another, or 0; what is left is an error.
#
# A stat is a line: name, value, type, and |@0.1 where one in ten was sent (StatsD, "Metric Types", "Sampling"). The
# library is a stream, keeps what is no stat yet for the next piece, and tries what it has at the end of each:
# "hits:1|c" is a stat there, and so is "|@0" of "|@0.5". Seen (pieces, what is told):
#
#   "hits:1|c|@0.1\n": hits 1, rate 0.1
#   "hits:1" "|c|@0.1\n": hits 1, rate 0.1
#   "hits:1|c" "|@0.1\n": hits 1, rate none; Buffered Line was not valid stats d `|@0.1`.
#   "took:320|ms|@0" ".5\n": took 320, rate 0; Buffered Line was not valid stats d `.5`.
#   "took:320|ms|@0." "25\n": took 320, rate 0.; Buffered Line was not valid stats d `25`.
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts statsd-parser@0.0.4 > log 2>&1 \
    || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const { createStream } = require('statsd-parser');

for (const pieces of [
  ['hits:1|c|@0.1\n'],
  ['hits:1', '|c|@0.1\n'],
  ['hits:1|c', '|@0.1\n'],
  ['took:320|ms|@0', '.5\n'],
  ['took:320|ms|@0.', '25\n'],
]) {
  const told = [];
  const stream = createStream();
  stream.on('stat', (_, stat) => told.push(`${stat.stat} ${stat.value}, rate ${stat.sample_rate ?? 'none'}`));
  stream.on('error', (error) => told.push(error.message.split('\n')[0]));
  for (const piece of pieces) stream.write(piece);
  console.log(`${pieces.map((piece) => JSON.stringify(piece)).join(' ')}: ${told.join('; ')}`);
}
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
