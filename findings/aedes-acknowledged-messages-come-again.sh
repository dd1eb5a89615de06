#!/bin/sh
# aedes 1.2.0 (npm, an MQTT broker): to a session that is kept while its client is away, and has two filters that match
# a topic, what was published meanwhile is sent twice when it is back, and, though both were acknowledged, again
# when it is back once more. At QoS 2 the broker closes the connection in the middle instead.
#
# While the client is there a message comes once, whatever it subscribed to. Kept for an absent one it is put down
# once for each filter, under one number, and the acknowledgements do not find them all (a PUBREC has "no such
# packet", upon which the client is cut off). MQTT 3.1.1 lets a message come once for each filter (3.3.5), and has one
# that was acknowledged discarded (4.3.2). Beside it, what is kept comes with the QoS and the retain flag that it was
# published with: QoS 2 where QoS 1 was granted (3.8.4), and as if it had been retained before the client subscribed
# (3.3.1.3). mosquitto 2.0.11 sends each of these once, as it was granted. Seen (persistence in memory, as it is
# by default; what comes at the first, second and third return):
#
#   QoS 1, one filter: m; nothing; nothing
#   QoS 1, two filters: m, m; m; nothing
#   QoS 2, one filter of QoS 2: m; nothing; nothing
#   QoS 2, two filters of QoS 2: nothing, and is closed; m; nothing
#   QoS 2, one filter of QoS 1: m at QoS 2; nothing; nothing
#   QoS 1, one filter, retained: m retained; nothing; nothing
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts aedes@1.2.0 mqtt@5.16.0 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > look.mjs <<'END'
import net from 'node:net';
import { Aedes } from 'aedes';
import mqtt from 'mqtt';

let url = process.argv[2];
if (!url) {
  const broker = await Aedes.createBroker();
  const server = net.createServer(broker.handle);
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `mqtt://127.0.0.1:${server.address().port}`;
}
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const publisher = await mqtt.connectAsync(url);
let sessions = 0;

async function returned(clientId, granted) {
  const found = [];
  let closed = false;
  const client = mqtt.connect(url, { clientId, clean: false, reconnectPeriod: 0 });
  client.on('close', () => { closed = true; });
  client.on('message', (_, message, { qos, retain }) =>
    found.push(`${message}${qos > granted ? ` at QoS ${qos}` : ''}${retain ? ' retained' : ''}`));
  await pause(1500);
  const end = closed ? ', and is closed' : '';
  await client.endAsync();
  return `${found.join(', ') || 'nothing'}${end}`;
}

async function look(text, filters, granted, message) {
  sessions += 1;
  const clientId = `session-${sessions}`;
  const client = await mqtt.connectAsync(url, { clientId, clean: false, reconnectPeriod: 0 });
  for (const filter of filters) await client.subscribeAsync(filter, { qos: granted });
  await client.endAsync();
  await publisher.publishAsync('plant/1', 'm', message);
  await pause(500);
  const found = [];
  for (let times = 0; times < 3; times += 1) found.push(await returned(clientId, granted));
  console.log(`QoS ${message.qos}, ${text}: ${found.join('; ')}`);
}

const both = ['plant/1', 'plant/#'];
await look('one filter', ['plant/1'], 1, { qos: 1 });
await look('two filters', both, 1, { qos: 1 });
await look('one filter of QoS 2', ['plant/1'], 2, { qos: 2 });
await look('two filters of QoS 2', both, 2, { qos: 2 });
await look('one filter of QoS 1', ['plant/1'], 1, { qos: 2 });
await look('one filter, retained', ['plant/1'], 1, { qos: 1, retain: true });
process.exit(0);
END
timeout 120 node look.mjs | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
