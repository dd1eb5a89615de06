"""How soon the page of 64 receivers and 1,000 batches is there in a browser, and what news cost.

The browser is Chromium without a window, with an empty profile each time. The driver's processor is
this process's: it serves the page and does nothing else.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from selenium.webdriver.support.ui import WebDriverWait

from benchmarks.programs._fed_model import BATCHES, RECEIVERS, Fed
from benchmarks.programs._program import tell
from penstock.monitor.web.access import Access
from penstock.monitor.web.routes import Routes
from penstock.monitor.web.server import WebServer
from tests.services.chromium import open_browser

POINTS = 600
VISITS = 5
UPDATES = 20
WAIT_S = 60.0

# Says when all of it was there, by the browser's own clock from the beginning of the visit.
SHOWN = """
const count = (name) => document.querySelectorAll(name).length;
if (!window.shownAt && count("#receivers tbody tr:not(.more)") === %d
    && count("#completed tbody tr") === 100 && count("#charts svg") === 5)
  window.shownAt = performance.now();
return window.shownAt || 0;
"""
PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime || 0;"


def visit(url):
    with tempfile.TemporaryDirectory() as folder:
        browser = open_browser(Path(folder))
        try:
            browser.get(url)
            wait = WebDriverWait(browser, WAIT_S, poll_frequency=0.01)
            shown_ms = wait.until(lambda _: browser.execute_script(SHOWN % RECEIVERS))
            return wait.until(lambda _: browser.execute_script(PAINT)), shown_ms
        finally:
            browser.quit()


def updates_ms(fed, url):
    """Return what each second's news cost the driver while a page listens."""
    with tempfile.TemporaryDirectory() as folder:
        browser = open_browser(Path(folder))
        try:
            browser.get(url)
            time.sleep(3)
            found = []
            for _ in range(UPDATES):
                fed.pass_second()
                begun = time.process_time()
                time.sleep(1.5)
                found.append((time.process_time() - begun) * 1000)
            return median(found)
        finally:
            browser.quit()


fed = Fed()
for number in range(BATCHES):
    fed.batch(number)
for _ in range(POINTS):
    fed.pass_second()
routes = Routes(fed.model, Access(is_open=True))
server = WebServer("127.0.0.1", iter([0]), routes.answer)
server.start()
url = f"http://127.0.0.1:{server.port}/"
visits = [visit(url) for _ in range(VISITS)]
update_ms = updates_ms(fed, url)
routes.stop()
server.stop(WAIT_S)
tell(
    {
        "figures": {
            "first_paint_ms": median(paint for paint, _ in visits),
            "shown_ms": median(shown for _, shown in visits),
            "update_ms": update_ms,
        }
    }
)
