#!/bin/sh
# pika 1.4.4 cuts the floating-point numbers in a message's headers to integers, without a word: a
# share of 0.25 that was sent from Java or Go is 0, a price of -1.75 is -1. It encodes none itself (an
# error), so a program that is tried with pika on both sides never meets it.
#
# The issue that reports it (pika/pika 599, of 2015) is closed. What stands in `x-...` headers of
# retries, samples, weights and rates has to be sent as text or as a decimal. Seen, of a table that
# pamqp 4.0.1 has encoded:
#
#   sent: {'decimal': Decimal('0.25'), 'parts': [0.5, 1.5], 'price': -1.75, 'share': 0.25}
#   by pamqp: {'decimal': Decimal('0.25'), 'parts': [0.5, 1.5], 'price': -1.75, 'share': 0.25}
#   by pika: {'decimal': Decimal('0.25'), 'parts': [0L, 1L], 'price': -1L, 'share': 0L}
#   0.25 by pika, encoded: UnsupportedAMQPFieldException
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pika==1.4.4 pamqp==4.0.1
cd "$work"
cat > look.py <<'END'
import decimal

import pamqp.decode
import pamqp.encode
import pika.data

sent = {"decimal": decimal.Decimal("0.25"), "parts": [0.5, 1.5], "price": -1.75, "share": 0.25}
encoded = pamqp.encode.field_table(sent)
print("sent:", sent)
print("by pamqp:", pamqp.decode.field_table(encoded)[1])
print("by pika:", pika.data.decode_table(encoded, 0)[0])
try:
    told = pika.data.encode_table([], {"share": 0.25})
except Exception as error:
    told = type(error).__name__
print("0.25 by pika, encoded:", told)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
