"""The HTTP door that is fuzzed, in a process of its own: a real server over a model that is fed.

Says one line of JSON when it listens (``port``, ``token``), then has batches and readings several
times a second. When its input ends it says what was done from outside (``acted``), and stops.
"""

from __future__ import annotations

import json
import logging
import sys
import threading

from penstock.monitor.web.access import Access
from penstock.monitor.web.routes import Routes
from penstock.monitor.web.server import Bounds, WebServer
from tests.monitor.feeding import Program
from tests.system.fuzz.target import say

TICK_S = 0.1
BOUNDS = Bounds(request_s=2.0, answer_s=2.0)
"""Shorter times than a program's, so that who is slow is cut off while it is looked at."""


def main() -> None:
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    program = Program(retained_batches=100)
    program.start()
    program.receiver()
    access = Access(is_open=True)
    routes = Routes(program.model, access)
    server = WebServer("127.0.0.1", iter([0]), routes.answer, bounds=BOUNDS)
    server.start()
    say({"port": server.port, "token": access.token})
    over = threading.Event()
    threading.Thread(target=_await_end, args=(over,), daemon=True).start()
    number = 0
    while not over.wait(TICK_S):
        number += 1
        program.batch(number, errors=("bad",) if number % 7 == 0 else (None,))
        program.second(1000, busy_s=0.5)
    routes.stop()
    server.stop(30.0)
    say({"acted": json.dumps(program.acted)})


def _await_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    main()
