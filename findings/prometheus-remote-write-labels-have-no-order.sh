#!/bin/sh
# prometheus-remote-write 0.5.1 (npm, 144,000 downloads a month): labels are sent in the order of the program, those of
# all series before the series' name; no header says that the body is compressed, though it is; a sample of time 0 is of
# now.
#
# Labels must be sorted by name, and a request must say Content-Encoding: snappy and which version of the protocol it
# has (Prometheus Remote-Write 1.0 specification, "Protocol" and "Labels"), which a receiver may rely on. Nothing is
# raised. snappyjs 0.7.0 (npm) opens the body. Seen:
#
#   sorted: __name__ host zone, at 1000
#   as written: zone host __name__, at 1000
#   with a common label: zone __name__ host, at 1000
#   of 1970: __name__, at now
#   headers: Content-Type
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts prometheus-remote-write@0.5.1 snappyjs@0.7.0 > log 2>&1 \
    || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const { deserialize, pushTimeseries } = require('prometheus-remote-write');
const { uncompress } = require('snappyjs');

async function look(name, labels, common, timestamp) {
  let sent;
  const fetch = async (url, request) => {
    sent = request;
    return { status: 204, statusText: 'No Content', text: async () => '' };
  };
  const series = { labels, samples: [{ value: 5, timestamp }] };
  await pushTimeseries(series, { url: 'http://127.0.0.1/', fetch, labels: common });
  const { timeseries } = await deserialize(uncompress(sent.body));
  const [{ labels: written, samples }] = timeseries;
  const when = Math.abs(Number(samples[0].timestamp) - Date.now()) < 60000 ? 'now' : Number(samples[0].timestamp);
  console.log(`${name}: ${written.map(({ name }) => name).join(' ')}, at ${when}`);
  return Object.keys(sent.headers).join(', ');
}

(async () => {
  await look('sorted', { __name__: 'up', host: 'a', zone: 'b' }, undefined, 1000);
  await look('as written', { zone: 'b', host: 'a', __name__: 'up' }, undefined, 1000);
  await look('with a common label', { __name__: 'up', host: 'a' }, { zone: 'b' }, 1000);
  const headers = await look('of 1970', { __name__: 'up' }, undefined, 0);
  console.log(`headers: ${headers}`);
})();
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
