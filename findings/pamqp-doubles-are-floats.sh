#!/bin/sh
# pamqp 4.0.1, which aio-pika and aiormq write with: a number in a message's headers has 24 bits, 0.1 is
# 0.10000000149011612, and a time in seconds since 1970 is up to a minute off.
#
# Python's float has 64 bits, and AMQP has both kinds, f and d (RabbitMQ, "AMQP 0-9-1 Errata", "Field types"); the
# library writes every float as f, and reads each kind as it is. Nothing is raised. A value by which a headers
# exchange binds is another one than what a client that writes doubles has sent. amqp 5.4.2, which Celery and kombu
# write with, writes d. Seen (the header, what pamqp makes of it and what amqp does, both read by pamqp):
#
#   0.1: pamqp 0.10000000149011612, amqp 0.1
#   1764504000.25: pamqp 1764504064.0, amqp 1764504000.25
#   16777217.0: pamqp 16777216.0, amqp 16777217.0
#   0.5: pamqp 0.5, amqp 0.5
#   1e+39: pamqp OverflowError, amqp 1e+39
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pamqp==4.0.1 amqp==5.4.2
cd "$work"
cat > look.py <<'END'
import amqp.serialization
import pamqp.decode
import pamqp.encode


def by_pamqp(value):
    return pamqp.encode.field_table({"key": value})


def by_amqp(value):
    return amqp.serialization.dumps("F", [{"key": value}])


def read(write, value):
    try:
        return pamqp.decode.field_table(write(value))[1]["key"]
    except (OverflowError, TypeError) as error:
        return type(error).__name__


for value in (0.1, 1764504000.25, 16777217.0, 0.5, 1e39):
    print(f"{value}: pamqp {read(by_pamqp, value)}, amqp {read(by_amqp, value)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
