#!/bin/sh
# jcampconverter 12.5.3 (npm, spectra in JCAMP-DX): after an ordinate that is not valid all others stand one place too early;
# with a comment behind the factor of the ordinates they are a hundred times as high, with one behind the first abscissa there
# is none.
#
# A question mark stands for an ordinate that is not valid, and $$ begins a comment, which ends with its line (JCAMP-DX 4.24,
# McDonald and Wilks, Applied Spectroscopy 42, 1988). The library leaves out the question mark, and does not look at the
# abscissa that each line of data begins with, which says that the next value has another place. A comment it takes away in the
# lines of data, but not from the fields before them: YFACTOR is 1 then, FIRSTX 0 and the other places NaN. Nothing is raised.
# Seen (where; ordinates by abscissa; NPOINTS is 6, from 400 to 405):
#
#   none: 400 0.1, 401 0.2, 402 0.3, 403 0.4, 404 0.5, 405 0.6
#   ? at 401: 400 0.1, 401 0.3, 402 0.4, 403 0.5, 404 0.6
#   ? at 401, as differences: 400 0.1, 401 0.3, 402 0.4, 403 0.5, 404 0.6
#   comment in the data: 400 0.1, 401 0.2, 402 0.3, 403 0.4, 404 0.5, 405 0.6
#   comment behind YFACTOR: 400 10, 401 20, 402 30, 403 40, 404 50, 405 60
#   comment behind FIRSTX: 0 0.1, NaN 0.2, NaN 0.3, NaN 0.4, NaN 0.5, NaN 0.6
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts jcampconverter@12.5.3 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.mjs <<'END'
import { convert } from 'jcampconverter';

const FIELDS = {
  TITLE: 'a film', 'JCAMP-DX': '4.24', 'DATA TYPE': 'INFRARED SPECTRUM', XUNITS: '1/CM', YUNITS: 'ABSORBANCE',
  XFACTOR: '1', YFACTOR: '0.01', FIRSTX: '400', LASTX: '405', DELTAX: '1', FIRSTY: '0.1', NPOINTS: '6',
};

function look(where, data, changed = {}) {
  const fields = Object.entries({ ...FIELDS, ...changed }).map(([name, value]) => `##${name}=${value}`);
  const text = [...fields, '##XYDATA=(X++(Y..Y))', ...data, '##END=', ''].join('\n');
  const { x, y } = convert(text).flatten[0].spectra[0].data;
  console.log(`${where}: ${Array.from(y, (value, at) => `${x[at]} ${value}`).join(', ')}`);
}

const DATA = ['400 10 20 30', '403 40 50 60'];
look('none', DATA);
look('? at 401', ['400 10 ? 30', '403 40 50 60']);
look('? at 401, as differences', ['400A0?C0', '403D0J0J0']);
look('comment in the data', ['400 10 20 30 $$ checked', '403 40 50 60']);
look('comment behind YFACTOR', DATA, { YFACTOR: '0.01 $$ of the detector' });
look('comment behind FIRSTX', DATA, { FIRSTX: '400 $$ of the film' });
END
node look.mjs | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
