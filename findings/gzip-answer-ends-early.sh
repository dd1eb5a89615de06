#!/bin/sh
# requests 2.34.2 (urllib3 2.8.0) and httpx 0.28.1 take a gzip body that ends in the middle for a whole
# one, and give what could be unpacked; of a zstd body that ends so httpx raises an error, and requests
# does not.
#
# A log of 5,000 lines is served with Content-Encoding: gzip while its copy at the server is not
# complete. Content-Length is that of the bytes there are, so that nothing is wrong but the end of the
# compressed data, where gzip has its length and checksum. Of a body that was cut after 50, 90 and 99 %
# of its bytes, and before its last 8 bytes (the checksum), they give so many lines; the zstd body was
# cut after half of its bytes:
#
#   requests gzip: 2442 4482 4948 5000, zstd: 88
#   httpx gzip: 2442 4482 4948 5000, zstd: DecodingError
#   gzip.decompress: EOFError
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q httpx==0.28.1 zstandard==0.25.0 requests==2.34.2 urllib3==2.8.0
cd "$work"
cat > look.py <<'END'
import gzip
import http.server
import random
import threading

import httpx
import requests
import zstandard

chance = random.Random(1)
LOG = b"".join(b"%d %d\n" % (number, chance.randrange(10**9)) for number in range(5000))
WHOLE = {"gzip": gzip.compress(LOG, mtime=0), "zstd": zstandard.ZstdCompressor().compress(LOG)}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        _, coding, size = self.path.split("/")
        self.send_response(200)
        self.send_header("Content-Encoding", coding)
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(WHOLE[coding][: int(size)])

    def log_message(self, *_):
        pass


size = len(WHOLE["gzip"])
cuts = [size * part // 100 for part in (50, 90, 99)] + [size - 8]
with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for client in (requests, httpx):
        found = [client.get(f"{address}/gzip/{cut}").content.count(b"\n") for cut in cuts]
        try:
            told = client.get(f"{address}/zstd/{len(WHOLE['zstd']) // 2}").content.count(b"\n")
        except httpx.DecodingError as error:
            told = type(error).__name__
        print(f"{client.__name__} gzip:", *found, end=f", zstd: {told}\n")
    server.shutdown()
try:
    gzip.decompress(WHOLE["gzip"][: size - 8])
except EOFError as error:
    print("gzip.decompress:", type(error).__name__)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
