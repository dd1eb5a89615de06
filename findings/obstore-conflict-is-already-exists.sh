#!/bin/sh
# obstore 0.12.1 (Rust object_store 0.14) says of a create-if-absent that S3 answers with 409 that the
# object exists already, though there is none.
#
# S3 answers a conditional write with 409 ConditionalRequestConflict when it met another request for the
# same key that was under way, for example a DELETE, and says that it is to be tried again (User Guide,
# "How to prevent object overwrites with conditional writes"). 412 says that there is an object. The
# client raises AlreadyExistsError for both, and tries neither again. Seen:
#
#   obstore 0.12.1
#   412: AlreadyExistsError
#   409: AlreadyExistsError, and a get then raises FileNotFoundError
#
# So whoever takes the error for "another one was quicker" goes on as if the object were there: a lock
# that nobody holds, a commit that nobody made. Reading the object back tells the two apart.
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q obstore==0.12.1
cat > "$work/show.py" <<'END'
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import obstore
from obstore.store import S3Store

CONFLICT = (
    b"<Error><Code>ConditionalRequestConflict</Code><Message>The conditional request cannot "
    b"succeed due to a conflicting operation against this resource.</Message></Error>"
)
EXISTS = b"<Error><Code>PreconditionFailed</Code><Message>no</Message></Error>"
MISSING = b"<Error><Code>NoSuchKey</Code><Message>no</Message></Error>"


class S3(BaseHTTPRequestHandler):
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        assert self.headers["If-None-Match"] == "*"
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("conflict"):
            self.answer(409, CONFLICT)
        else:
            self.answer(412, EXISTS)

    def do_GET(self):
        self.answer(404, MISSING)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), S3)
threading.Thread(target=server.serve_forever, daemon=True).start()
store = S3Store(
    "bucket",
    endpoint=f"http://127.0.0.1:{server.server_port}",
    access_key_id="key",
    secret_access_key="secret",
    region="us-east-1",
    client_options={"allow_http": True},
)


def raised(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__
    return "nothing"


exists = raised(obstore.put, store, "exists", b"x", mode="create")
conflict = raised(obstore.put, store, "conflict", b"x", mode="create")
then = raised(obstore.get, store, "conflict")
print("obstore 0.12.1")
print(f"412: {exists}")
print(f"409: {conflict}, and a get then raises {then}")
seen = (exists, conflict, then)
sys.exit(0 if seen == ("AlreadyExistsError", "AlreadyExistsError", "FileNotFoundError") else 1)
END
"$work/venv/bin/python" "$work/show.py"
