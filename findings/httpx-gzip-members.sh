#!/bin/sh
# httpx 0.28.1 gives the first member of a gzip body and drops the others, without an error.
#
# A gzip body may have several members (RFC 1952, 2.2): a log that is compressed piece by piece, or
# whose compressed pieces are put together, has; it is stored so, and served as it is with
# Content-Encoding: gzip. Of two members "one" and "two" httpx gives "one"; the same in stream mode.
# aiohttp 3.14.5, requests 2.34.2 and urllib3 2.8.0 give both, as gzip, zcat and Python's gzip do.
# Two frames of zstd httpx does give. Seen:
#
#   httpx gzip: b'one\n'
#   httpx gzip, as a stream: b'one\n'
#   httpx zstd: b'one\ntwo\n'
#   requests gzip: b'one\ntwo\n'
#   aiohttp gzip: b'one\ntwo\n'
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q httpx==0.28.1 zstandard==0.25.0 requests==2.34.2 urllib3==2.8.0 \
    aiohttp==3.14.5
cd "$work"
cat > look.py <<'END'
import asyncio
import gzip
import http.server
import threading

import aiohttp
import httpx
import requests
import zstandard

PACK = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        coding = self.path[1:]
        body = PACK[coding](b"one\n") + PACK[coding](b"two\n")
        self.send_response(200)
        self.send_header("Content-Encoding", coding)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


async def by_aiohttp(address):
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        return await answer.read()


with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    print("httpx gzip:", httpx.get(f"{address}/gzip").content)
    with httpx.stream("GET", f"{address}/gzip") as answer:
        print("httpx gzip, as a stream:", b"".join(answer.iter_bytes()))
    print("httpx zstd:", httpx.get(f"{address}/zstd").content)
    print("requests gzip:", requests.get(f"{address}/gzip").content)
    print("aiohttp gzip:", asyncio.run(by_aiohttp(f"{address}/gzip")))
    server.shutdown()
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
