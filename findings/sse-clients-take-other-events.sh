#!/bin/sh
# Three clients for Server-Sent Events, httpx-sse 0.4.3, sseclient-py 1.9.0 and requests-sse 0.5.3, give
# other events than the standard's own steps (WHATWG HTML, 9.2.6) for streams that are valid, and each
# differs in another way.
#
# An event is lost if the stream begins with the byte order mark that the standard lets it have; a
# block that only names an event or an id, as servers send to keep a connection, is an event without
# data by httpx-sse; sseclient-py gives what a lost connection cut off as if it were whole, and without
# the id that goes on; requests-sse takes lines apart where a chunk ends between CR and LF, and cuts
# off spaces and empty lines that belong to the data. Seen (data, and the last id where there is one):
#
#   mark, by the standard: one
#   mark, by httpx-sse: nothing
#   mark, by sseclient-py: nothing
#   mark, by requests-sse: nothing
#   keep-alive, by the standard: one
#   keep-alive, by httpx-sse: '' one
#   keep-alive, by sseclient-py: one
#   keep-alive, by requests-sse: one
#   cut off, by the standard: one
#   cut off, by httpx-sse: one
#   cut off, by sseclient-py: one tw
#   cut off, by requests-sse: one
#   id, by the standard: one(7) two(7)
#   id, by httpx-sse: one(7) two(7)
#   id, by sseclient-py: one(7) two
#   id, by requests-sse: one(7) two(7)
#   CR LF in two chunks, by the standard: 'one\ntwo'
#   CR LF in two chunks, by httpx-sse: 'one\ntwo'
#   CR LF in two chunks, by sseclient-py: 'one\ntwo'
#   CR LF in two chunks, by requests-sse: one two
#   spaces and empty lines, by the standard: '  one\n'
#   spaces and empty lines, by httpx-sse: '  one\n'
#   spaces and empty lines, by sseclient-py: '  one\n'
#   spaces and empty lines, by requests-sse: one
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q httpx==0.28.1 httpx-sse==0.4.3 sseclient-py==1.9.0 requests==2.32.5 \
    requests-sse==0.5.3
cd "$work"
cat > look.py <<'END'
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import httpx_sse
import requests
import requests_sse
import sseclient

# Name, the chunks that are sent, and the events by the standard: data, last id.
STREAMS = (
    ("mark", (b"\xef\xbb\xbfdata: one\n\n",), [("one", "")]),
    ("keep-alive", (b"event: ping\n\ndata: one\n\n",), [("one", "")]),
    ("cut off", (b"data: one\n\ndata: tw\n",), [("one", "")]),
    ("id", (b"id: 7\ndata: one\n\ndata: two\n\n",), [("one", "7"), ("two", "7")]),
    ("CR LF in two chunks", (b"data: one\r", b"\ndata: two\r\n\r\n"), [("one\ntwo", "")]),
    ("spaces and empty lines", (b"data:   one\ndata:\n\n",), [("  one\n", "")]),
)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answered = set()

    def do_GET(self):
        if self.path in self.answered:  # a client that connects again is to stop
            self.send_response(204)
            self.end_headers()
            return
        self.answered.add(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in STREAMS[int(self.path.split("/")[1])][1]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


def by_httpx_sse(url):
    with httpx.Client() as client, httpx_sse.connect_sse(client, "GET", url) as source:
        return [(event.data, event.id) for event in source.iter_sse()]


def by_sseclient(url):
    source = sseclient.SSEClient(requests.get(url, stream=True))
    return [(event.data, event.id or "") for event in source.events()]


def by_requests_sse(url):
    found = []
    with requests_sse.EventSource(url, max_connect_retry=0, reconnection_time=0.0) as source:
        try:
            for event in source:
                found.append((event.data, event.last_event_id))
        except Exception:  # that the server has no more is an error
            pass
    return found


def shown(events):
    texts = ((data if data.isalnum() else repr(data), known) for data, known in events)
    return " ".join(data + (f"({known})" if known else "") for data, known in texts) or "nothing"


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
CLIENTS = (
    ("httpx-sse", by_httpx_sse),
    ("sseclient-py", by_sseclient),
    ("requests-sse", by_requests_sse),
)
for number, (name, _, wanted) in enumerate(STREAMS):
    print(f"{name}, by the standard: {shown(wanted)}")
    for client, read in CLIENTS:
        told = read(f"http://127.0.0.1:{server.server_port}/{number}/{client}")
        print(f"{name}, by {client}: {shown(told)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
