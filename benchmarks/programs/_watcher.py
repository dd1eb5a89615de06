"""Looks at a running program as a page and Prometheus do; its one argument is the program's pid."""

from __future__ import annotations

import http.client
import os
import sys
import threading
import time
from urllib.parse import urlsplit

from penstock.monitor.registry import registered, runtime_folder

SCRAPE_S = 5.0


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


def main(pid):
    while True:
        found = [app for app in registered(runtime_folder(os.environ)) if app.pid == pid]
        if found:
            break
        time.sleep(0.2)
    threading.Thread(target=listen, args=(found[0].url,), daemon=True).start()
    while True:
        scrape(found[0].url)
        time.sleep(SCRAPE_S)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except OSError:
        sys.exit(0)  # the program has ended
