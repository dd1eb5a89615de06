#!/bin/sh
# glossy 0.1.7 (npm; a parser of syslog): an emergency of the kernel has neither severity nor facility, and a message
# loses its beginning up to its last bracket.
#
# Both numbers of an emergency of the kernel are 0 (RFC 5424, 6.2.1; RFC 3164, 4.1.1), and so <0> is the most urgent
# that a computer sends. The library asks whether there is a number, and 0 is none to it: an alarm for severities
# below 3 never sees it. Where there is structured data, all up to the last "]" of the line is taken for it, so that a
# message with brackets is cut; of a name that comes twice, as addresses of an origin do (7.2.2), the
# last value is left, and an element without parameters is gone. Seen:
#
#   <0>: severity undefined, facility undefined
#   <1>: severity alert, facility kern
#   <8>: severity emerg, facility user
#   [a@1 b="1"] disk [sda] failed: message "failed", data {"a@1":{"b":"1"}}
#   - disk [sda] failed: message "disk [sda] failed", data undefined
#   [origin ip="192.0.2.1" ip="192.0.2.129"] up: message "up", data {"origin":{"ip":"192.0.2.129"}}
#   [a@1 b="1"][marked@1] up: message "up", data {"a@1":{"b":"1"}}
#
# Needs node and npm. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --no-audit --no-fund --silent glossy@0.1.7
cat > look.js <<'END'
const { Parse } = require("glossy");

for (const priority of [0, 1, 8]) {
  Parse.parse(`<${priority}>1 2026-01-01T00:00:00Z host app - - - text`, (read) =>
    console.log(`<${priority}>: severity ${read.severity}, facility ${read.facility}`),
  );
}
for (const rest of [
  '[a@1 b="1"] disk [sda] failed',
  "- disk [sda] failed",
  '[origin ip="192.0.2.1" ip="192.0.2.129"] up',
  '[a@1 b="1"][marked@1] up',
]) {
  Parse.parse(`<34>1 2026-01-01T00:00:00Z host app - - ${rest}`, (read) => {
    const [message, data] = [read.message, read.structuredData].map((part) => JSON.stringify(part));
    console.log(`${rest}: message ${message}, data ${data}`);
  });
}
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
