#!/bin/sh
# astropy 8.0.2, FITS with unsigned integers: what the file marks as undefined is a value, 0 or another, and in a
# table another row is left out in its place, one that has a value.
#
# Unsigned integers are stored as signed ones, with 32768 or 2147483648 to be added (BZERO and TZEROn). BLANK and
# TNULLn are the stored integer that stands for "undefined", without what is added (FITS standard 4.0, 4.4.2.5 and
# 7.3.2). In an image the library gives NaN for it, with any number that is to be added but those of unsigned ones,
# where it adds, says nothing, and a pixel that nobody measured is dark or full. `Table.read` adds first and masks
# then, so of a column with TNULL1 = 99 it masks each value 99 and shows the undefined ones as 32867; so with any
# TZEROn. A TNULLn below zero, the usual choice, is a TypeError there. Seen (two or three numbers each, of which
# the last one is undefined):
#
#   image, BLANK -32768: [1.0, nan]
#   image, BLANK -32768, BZERO 32768: [1, 0]
#   image, BLANK -32768, BZERO 32768, opened with uint=False: [1.0, nan]
#   image, BLANK 32767, BZERO 32768: [1, 65535]
#   image, BLANK -32768, BZERO 32767: [0.0, nan]
#   table, TNULL1 99: [7, 98, None]
#   table, TNULL1 99, TZERO1 32768: [7, None, 32867]
#   table, TNULL1 99, TZERO1 1000: [7.0, None, 1099.0]
#   table, TNULL1 -32768, TZERO1 32768: TypeError
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q astropy==8.0.2 numpy==2.4.6
cd "$work"
cat > look.py <<'END'
import io

import numpy
from astropy.io import fits
from astropy.table import Table

QUOTE = "'"


def block(cards, data=b""):
    """A header and its data, each filled up to whole blocks"""
    head = ""
    for name, value in cards.items():
        text = str(value)
        head += f"{name:8}= {text if text[0] == QUOTE else text.rjust(20)}".ljust(80)
    parts = (head + "END").encode(), data
    return parts[0].ljust(-(-len(parts[0]) // 2880) * 2880) + data + bytes(-len(data) % 2880)


def stored(values):
    return numpy.array(values, ">i2").tobytes()


def image(blank, added=None, **how):
    cards = {"SIMPLE": "T", "BITPIX": 16, "NAXIS": 1, "NAXIS1": 2, "BLANK": blank}
    text = f"image, BLANK {blank}"
    if added:
        cards["BZERO"] = added
        text += f", BZERO {added}"
    if how:
        text += ", opened with uint=False"
    file = block(cards, stored([1 - (32768 if added else 0), blank]))
    with fits.open(io.BytesIO(file), **how) as parts:
        print(f"{text}: {parts[0].data.tolist()}")


def table(null, added=0):
    cards = {"XTENSION": "'BINTABLE'", "BITPIX": 8, "NAXIS": 2, "NAXIS1": 2, "NAXIS2": 3}
    cards |= {"PCOUNT": 0, "GCOUNT": 1, "TFIELDS": 1, "TFORM1": "'I       '", "TTYPE1": "'x       '"}
    cards["TNULL1"] = null
    text = f"table, TNULL1 {null}"
    second = 98
    if added:
        cards["TZERO1"] = added
        text += f", TZERO1 {added}"
        second = 99
    first = block({"SIMPLE": "T", "BITPIX": 8, "NAXIS": 0})
    file = first + block(cards, stored([7 - added, second - added, null]))
    try:
        print(f"{text}: {Table.read(io.BytesIO(file), format='fits', hdu=1)['x'].tolist()}")
    except TypeError:
        print(f"{text}: TypeError")


image(-32768)
image(-32768, 32768)
image(-32768, 32768, uint=False)
image(32767, 32768)
image(-32768, 32767)
table(99)
table(99, 32768)
table(99, 1000)
table(-32768, 32768)
END
"$work/venv/bin/python" look.py 2> log | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
