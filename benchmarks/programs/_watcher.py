"""Looks at a running program from outside: ``_watcher PID page|tap``.

``page`` listens to what its page listens to and scrapes its metrics; ``tap`` asks for records as
``penstock tap`` does.
"""

from __future__ import annotations

import http.client
import os
import sys
import threading
import time
from urllib.parse import urlsplit

from penstock.errors import PenstockError
from penstock.monitor.cli import AppClient
from penstock.monitor.registry import registered, runtime_folder

SCRAPE_S = 5.0
TAP_S = 1.0
TAPPED = 10


def connect(url):
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)


def listen(url):
    connection = connect(url)
    connection.request("GET", "/api/penstock/live")
    answer = connection.getresponse()
    while answer.readline():
        pass


def scrape(url):
    connection = connect(url)
    connection.request("GET", "/metrics")
    connection.getresponse().read()
    connection.close()


def look(app):
    threading.Thread(target=listen, args=(app.url,), daemon=True).start()
    while True:
        scrape(app.url)
        time.sleep(SCRAPE_S)


def tap(app):
    client = AppClient(app.url, app.token, app.certificate)
    (stream,) = client.get("/api/penstock/status")["streams"]
    while True:
        client.act("tap", stream=stream["id"], count=TAPPED)
        time.sleep(TAP_S)


def main(pid, how):
    while True:
        found = [app for app in registered(runtime_folder(os.environ)) if app.pid == pid]
        if found:
            break
        time.sleep(0.2)
    {"page": look, "tap": tap}[how](found[0])


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2])
    except (OSError, PenstockError):
        sys.exit(0)  # the program has ended
