#!/bin/sh
# nsyslog-parser 0.10.1 (npm): of a message without a tag the first two words are the program and its process, also in
# an example of RFC 3164 itself; and an element of structured data that has a quote is lost.
#
# A tag ends where the first character comes that is no letter or digit, and a message need not have one (RFC 3164,
# 4.1.3, and 5.4, example 2). The library takes each two words before a third one for tag and process. In
# structured data a quote is written \" (RFC 5424, 6.3.3); an element with one is left out, or is text of the message
# if it is the last. A message that says that its sender knows no time (a dash, 6.2.3.1) gets the time of the
# reading, so that the same line has another time whenever it is read. Seen:
#
#   <13>Feb  5 17:32:18 10.0.0.99 Use the BFG!: app Use, pid the, message "BFG!"
#   <34>Oct 11 22:14:15 host value is 5 items: app value, pid is, message "items"
#   [a@1 b="x"][c@1 d="1"] text: data a@1 c@1, message "text"
#   [a@1 b="\"x\""][c@1 d="1"] text: data c@1, message "text"
#   [c@1 d="1"][a@1 b="\"x\""] text: data c@1, message "a@1 b=\"\\\"x\\\"\"] text"
#   no time: time of the reading
#
# Needs node and npm. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --no-audit --no-fund --silent nsyslog-parser@0.10.1
cat > look.js <<'END'
const parse = require("nsyslog-parser");

for (const line of [
  "<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!",
  "<34>Oct 11 22:14:15 host value is 5 items",
]) {
  const read = parse(line);
  console.log(`${line}: app ${read.appName}, pid ${read.pid}, message ${JSON.stringify(read.message)}`);
}
for (const rest of [
  '[a@1 b="x"][c@1 d="1"] text',
  '[a@1 b="\\"x\\""][c@1 d="1"] text',
  '[c@1 d="1"][a@1 b="\\"x\\""] text',
]) {
  const read = parse(`<34>1 2026-01-01T00:00:00Z host app - - ${rest}`);
  const names = read.structuredData.map((element) => element.$id).join(" ");
  console.log(`${rest}: data ${names}, message ${JSON.stringify(read.message)}`);
}
const start = Date.now();
const age = new Date(parse("<34>1 - host app - - - text").ts) - start;
console.log(`no time: ${age >= 0 && age < 60000 ? "time of the reading" : age}`);
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
