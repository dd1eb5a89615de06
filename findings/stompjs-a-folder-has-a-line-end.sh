#!/bin/sh
# @stomp/stompjs 7.5.0 (npm, the client of STOMP over WebSockets): the header C:\new is C:\, the end of a line and ew, and
# \\host\cache is \\host\:ache, also where the library itself has written them.
#
# In a header \\ is a backslash, \n the end of a line and \c a colon (STOMP 1.2, "Value Encoding"). The library makes line
# ends and colons of what follows any backslash, and one backslash of two at last; so it takes the second half of an escaped
# backslash for the beginning of another escape. Nothing is raised, and paths whose parts begin with other letters are right.
# stompit 1.0.0 reads what both write. Seen (the header's value; what stompjs and stompit write; what stompjs and stompit read
# of it, a line's end as |):
#
#   C:\data: C\c\\data C\c\\data: C:\data C:\data
#   C:\new: C\c\\new C\c\\new: C:\|ew C:\new
#   \\host\cache: \\\\host\\cache \\\\host\\cache: \\host\:ache \\host\cache
#   a:b: a\cb a\cb: a:b a:b
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts @stomp/stompjs@7.5.0 stompit@1.0.0 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const { PassThrough } = require('stream');
const { FrameImpl, Parser } = require('@stomp/stompjs');
const IncomingFrameStream = require('stompit/lib/IncomingFrameStream');
const OutgoingFrameStream = require('stompit/lib/OutgoingFrameStream');

const command = 'MESSAGE';

function byStompjs(value) {
  const frame = { command, headers: { path: value }, body: '', escapeHeaderValues: true, skipContentLengthHeader: true };
  return Buffer.from(FrameImpl.marshall(frame));
}

async function byStompit(value) {
  const wire = new PassThrough();
  const outgoing = new OutgoingFrameStream(wire);
  outgoing.setVersion('1.2');
  await new Promise(done => outgoing.frame(command, { path: value }).end(done));
  return wire.read();
}

function toStompjs(bytes) {
  let found;
  new Parser(raw => { found = FrameImpl.fromRawFrame(raw, true); }, () => {}).parseChunk(bytes);
  return found.headers.path;
}

function toStompit(bytes) {
  return new Promise(done => {
    const incoming = new IncomingFrameStream();
    incoming.setVersion('1.2');
    incoming.on('data', frame => done(frame.headers.path));
    incoming.write(bytes);
  });
}

const onLine = bytes => /path:(.*)/.exec(bytes.toString())[1];
const shown = value => value.replace(/\n/g, '|');

(async () => {
  for (const value of ['C:\\data', 'C:\\new', '\\\\host\\cache', 'a:b']) {
    const written = [byStompjs(value), await byStompit(value)];
    const read = [toStompjs(written[1]), await toStompit(written[0])];
    if (toStompjs(written[0]) !== read[0]) throw new Error('reads its own otherwise');
    console.log(`${value}: ${written.map(onLine).join(' ')}: ${read.map(shown).join(' ')}`);
  }
})();
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
