#!/bin/sh
# amqplib 2.3.1 (npm, the client of AMQP 0-9-1 for Node): a decimal below zero in a message's headers, as pika 1.4.4 (PyPI)
# writes it, is 2^32 more: -12.55 is 42949660.41.
#
# A decimal is a count of places and a whole number of 32 bits. By AMQP 0-9-1's grammar the number is a long-uint; RabbitMQ's
# page of errata calls it signed, and so do pika, pamqp and amqp of Python, which write and read one with a sign. amqplib takes
# the grammar's word, both ways: it refuses to send one that is below zero. So a header of an amount crosses from one client to
# the other without an error, and is right until something is paid back. Seen (the amount; its bytes in a header as pika,
# pamqp 4.0.1 and amqp 5.4.2 write them; what amqplib makes of those of pika):
#
#   12.55: 02000004e7 02000004e7 02000004e7: 12.55
#   0.05: 0200000005 0200000005 0200000005: 0.05
#   -0.05: 02fffffffb 02fffffffb 02fffffffb: 42949672.91
#   -12.55: 02fffffb19 02fffffb19 02fffffb19: 42949660.41
#   amqplib sends -12.55: refused
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pika==1.4.4 pamqp==4.0.1 amqp==5.4.2
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts amqplib@2.3.1 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > write.py <<'END'
import sys
from decimal import Decimal

import amqp.serialization
import pamqp.encode
import pika.data

amount = Decimal(sys.argv[1])
pieces = []
pika.data.encode_table(pieces, {"amount": amount})
by_pika = b"".join(pieces)
others = pamqp.encode.field_table({"amount": amount}), amqp.serialization.dumps("F", [{"amount": amount}])
print(by_pika.hex(), *(table[-5:].hex() for table in (by_pika, *others)))
END
cat > read.js <<'END'
const { decodeFields, encodeTable } = require('./node_modules/amqplib/lib/codec.js');

if (process.argv[2] === 'send') {
  const value = { places: 2, digits: -1255 };
  try {
    const end = encodeTable(Buffer.alloc(100), { amount: { '!': 'decimal', value } }, 0);
    console.log(`taken, ${end} bytes`);
  } catch (error) {
    console.log('refused');
  }
} else {
  // Behind the table's size.
  const { value } = decodeFields(Buffer.from(process.argv[2], 'hex').subarray(4)).amount;
  console.log((value.digits / 10 ** value.places).toFixed(value.places));
}
END
for amount in 12.55 0.05 -0.05 -12.55; do
    set -- $("$work/venv/bin/python" write.py "$amount")
    echo "$amount: $2 $3 $4: $(node read.js "$1")"
done | tee seen
echo "amqplib sends -12.55: $(node read.js send)" | tee -a seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
