"""What a person sees of a running program in a real browser, and may do there."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pyspark import SparkContext
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter, LetterTail
from penstock.monitor.web.access import Access
from penstock.monitor.web.routes import Routes
from penstock.monitor.web.server import WebServer
from penstock.monitor.web.status import Status
from penstock.tracker import ConsumerStatus, EpochStatus, KeptStream
from penstock.wal import SyncPolicy
from tests.bounds import HANG_S
from tests.monitor.asking import get, open_access, serving
from tests.monitor.feeding import START_MS, Program
from tests.monitor.picture import take_picture
from tests.services.chromium import BrowserMissingError, open_browser

pytestmark = pytest.mark.slow

WAIT_S = HANG_S


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    try:
        opened = open_browser(tmp_path_factory.mktemp("profile"))
    except BrowserMissingError as error:
        pytest.skip(f"platform: {error}")
    yield opened
    opened.quit()


class Shown:
    """A program whose page is open."""

    def __init__(
        self, program: Program, access: Access, server: WebServer, browser: Chrome
    ) -> None:
        self.program, self.access, self.browser = program, access, browser
        self.address = f"http://localhost:{server.port}/"

    def open(self, path: str = "") -> None:
        self.browser.get(self.address + path)

    def text(self, name: str = "body") -> str:
        return self.browser.find_element(By.CSS_SELECTOR, name).text

    def wait_for(self, text: str, name: str = "body") -> None:
        WebDriverWait(self.browser, WAIT_S).until(lambda _: text in self.text(name))

    def fit(self, outer: str, inner: str) -> bool:
        """Tell whether nothing that is found in some elements is wider than they are."""
        return all(
            found.size["width"] <= place.size["width"] + 1
            for place in self.browser.find_elements(By.CSS_SELECTOR, outer)
            for found in place.find_elements(By.CSS_SELECTOR, inner)
        )

    def count(self, name: str) -> int:
        return len(self.browser.find_elements(By.CSS_SELECTOR, name))


@pytest.fixture
def shown(browser: Chrome) -> Iterator[Shown]:
    program = Program(streams={0: "<img src=x onerror=alert(1)>"})
    program.start()
    program.receiver(limit=8000.0, source="estimator")
    for number in range(1, 61):
        program.batch(number, takes_ms=200 + number)
        program.second(8000, rate_s=0.9, busy_s=0.1)
    access = open_access()
    routes = Routes(program.model, access)
    with serving(routes.answer) as server:
        yield Shown(program, access, server, browser)
        routes.stop()
    # Nothing went wrong in it, and nothing was asked of another host. What it was refused it says.
    said = [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    told = ("net::ERR", "status of 400", "status of 403", "status of 404")
    assert [line for line in said if not any(each in line for each in told)] == []


@pytest.mark.long
def test_after_a_minute_it_shows_how_the_program_goes(shown: Shown) -> None:
    shown.open()
    shown.wait_for("held at 8,000 records/s by backpressure", "#sentence")
    assert shown.text("#name") == "a <b>program</b>"
    assert shown.count("#name b") == 0
    shown.wait_for("60 completed batches", "#since")
    WebDriverWait(shown.browser, WAIT_S).until(lambda _: shown.count("#charts svg") == 5)
    # Each in its own place, and not over the next.
    WebDriverWait(shown.browser, WAIT_S).until(lambda _: shown.fit("#charts figure", "svg"))
    labels = [
        chart.get_attribute("aria-label")
        for chart in shown.browser.find_elements(By.CSS_SELECTOR, "#charts svg")
    ]
    assert "Input Rate, records/sec: now 8,000" in labels
    assert "Processing Time, ms: now 260 ms" in labels
    assert shown.count("#receivers tbody tr:not(.more)") == 1
    assert "h1, executor 3" in shown.text("#receivers")
    # A line over a minute, and beside it how often the batches took how long.
    line = shown.browser.find_element(By.CSS_SELECTOR, "#charts figure:nth-child(3) path")
    assert line.get_attribute("d").count("L") == 59
    bars = shown.browser.find_elements(By.CSS_SELECTOR, "#charts figure:nth-child(3) rect title")
    said = [bar.get_attribute("textContent") for bar in bars]
    assert said == ["200 ms to 300 ms: 60 of the last 60 batches"]
    assert "tokens (estimator) 90 %" in shown.text("#receivers")
    assert "1 / 1 active" in shown.text("#receivers")
    assert shown.count("#completed tbody tr") == 60
    # A stream's name is text, whatever is in it.
    assert "<img src=x onerror=alert(1)>-0" in shown.text("#receivers")
    assert shown.count("img") == 0


def test_of_a_host_it_shows_queries_and_no_batches(browser: Chrome) -> None:
    program = Program(batch_ms=None)
    program.start()
    program.receiver(limit=8000.0, source="query")
    query = ConsumerStatus("<b>c4ff</b>", 5, 1_200, True, START_MS)
    program.kept[0] = KeptStream(0, "epoch", 3, 9, 12_345, 5 << 20, (query,))
    for _ in range(5):
        program.second(8000, rate_s=0.9, busy_s=0.1)
    access = open_access()
    routes = Routes(program.model, access)
    with serving(routes.answer) as server:
        shown = Shown(program, access, server, browser)
        shown.open()
        shown.wait_for("by the slowest query that reads it", "#sentence")
        shown.wait_for("Receiving since", "#since")
        assert "numbers-0 5 MiB in 6 blocks 12,345 <b>c4ff</b> 1,200" in shown.text("#queries")
        assert shown.count("#queries b") == 0
        assert not browser.find_element(By.ID, "epochs-section").is_displayed()
        WebDriverWait(browser, WAIT_S).until(lambda _: shown.count("#charts svg") == 1)
        for hidden in ("active-section", "completed-section"):
            assert not browser.find_element(By.ID, hidden).is_displayed()
        program.kept[0] = KeptStream(0, "epoch", 9, 9, 12_345, 0, ())
        program.model.tick()
        shown.wait_for("no query reads it", "#queries")
        program.epochs[0] = EpochStatus(8, 7, 12_345, 1, ("the sink",), 1_500, 100, 3, 2)
        program.model.tick()
        shown.wait_for("numbers-0 8 7 1.5 s 12,345 3 2 1 the sink", "#epochs")
        routes.stop()


@pytest.mark.long
def test_news_comes_without_a_reload(shown: Shown) -> None:
    shown.open()
    shown.wait_for("60 completed batches", "#since")
    shown.program.batch(61, errors=("no <script>alert(1)</script> table",))
    shown.program.model.tick()
    shown.wait_for("61 completed batches", "#since")
    shown.wait_for("The last batch failed", "#sentence")
    shown.wait_for("of a batch failed: ValueError: no <script>", "#events")
    assert not shown.browser.find_element(By.ID, "skipped").is_displayed()
    shown.program.skipped = 3
    shown.program.receiver(state="stopped", error="the source is gone", trace="Traceback ...")
    shown.program.model.tick()
    shown.wait_for("STOPPED", "#receivers")
    shown.wait_for("the source is gone", "#receivers")
    shown.wait_for("3 blocks were left out of batches because no host has them", "#skipped")
    shown.browser.find_element(By.CSS_SELECTOR, "#receivers button").click()
    shown.wait_for("{'offset': 17}", "#receivers")
    shown.wait_for("Traceback ...", "#receivers")
    # It stays unfolded, and the keyboard stays where it was, whatever news come.
    shown.program.batch(62)
    shown.program.model.tick()
    shown.wait_for("62 completed batches", "#since")
    assert "Traceback ..." in shown.text("#receivers")
    assert shown.browser.switch_to.active_element.text == "<img src=x onerror=alert(1)>-0"


def test_a_failed_batch_has_a_page_that_says_why_and_leads_to_sparks_jobs(shown: Shown) -> None:
    shown.program.batch(
        61,
        errors=(None, "no such table <img src=x onerror=alert(1)>"),
        description="a topic",
        plans_ms=40,
    )
    shown.program.model.tick()
    shown.open()
    shown.wait_for("61 completed batches", "#since")
    shown.browser.find_element(By.CSS_SELECTOR, "#completed tbody tr:first-child a").click()
    shown.wait_for("Details of batch at", "#batch-head")
    shown.wait_for("a topic", "#batch-inputs")
    assert "Planning\n40 ms" in shown.text("#batch-facts")
    told = "ValueError: no such table <img src=x onerror=alert(1)>"
    assert told in shown.text("#batch-operations")
    assert shown.count("#batch-operations img, #events img") == 0
    link = shown.browser.find_element(By.LINK_TEXT, "9")
    assert link.get_attribute("href") == "http://127.0.0.1:4040/jobs/job/?id=9"
    shown.open(f"?batch={START_MS}")
    shown.wait_for("there is no such batch", "#batch-head")


def test_only_who_proves_the_right_may_act(shown: Shown) -> None:
    shown.open()
    shown.wait_for("You are looking only")
    assert not shown.browser.find_element(By.ID, "acting").is_displayed()
    shown.open(f"#code={shown.access.new_code()}")
    shown.wait_for("Set the rate", "#acting")
    Select(shown.browser.find_element(By.ID, "rate-stream")).select_by_index(0)
    value = shown.browser.find_element(By.ID, "rate-value")
    value.send_keys("5000/second\n")
    shown.wait_for("rate 5000/second", "#acted")
    value.clear()
    value.send_keys("-5\n")
    shown.wait_for("it must be above 0", "#acted")
    for button, told in (
        ("pause", "is paused"),
        ("resume", "goes on"),
        ("restart", "stops and starts again"),
        ("seal", "seals its open block"),
    ):
        # What comes in above moves the button: a click at its place may meet another one.
        shown.browser.execute_script("document.getElementById(arguments[0]).click()", button)
        shown.wait_for(told, "#acted")
    shown.browser.find_element(By.ID, "stop").click()
    shown.browser.switch_to.alert.accept()
    shown.wait_for("stopping gracefully", "#acted")
    did = [("pause", 0), ("resume", 0), ("restart", 0), ("seal", 0)]
    assert shown.program.acted == [("rate", 0, "5000/second"), *did, ("stop", True)]


@contextlib.contextmanager
def another_server() -> Iterator[tuple[str, list[str]]]:
    """Run another user's server on another port of this host; it keeps all that it is sent."""
    told: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append(f"{self.requestline}\n{self.headers}")
            body = b"<!doctype html><title>another user's</title>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}/", told
        finally:
            server.shutdown()
            thread.join()


ACT = """
const done = arguments[arguments.length - 1];
fetch(arguments[0] + "api/penstock/actions/stop", {
  method: "POST", mode: "no-cors", credentials: "include", body: "{}",
}).then(() => done("asked"), () => done("refused"));
"""


def test_another_server_of_the_host_learns_no_token_and_cannot_act(shown: Shown) -> None:
    shown.open(f"#code={shown.access.new_code()}")
    shown.wait_for("Set the rate", "#acting")
    assert shown.browser.current_url == shown.address
    with another_server() as (address, told):
        shown.browser.get(address)
        WebDriverWait(shown.browser, WAIT_S).until(lambda _: told)
        script = "return [document.cookie, ...Object.values({...sessionStorage})].join()"
        assert shown.browser.execute_script(script) == ""
        shown.browser.execute_async_script(ACT, shown.address)
        assert shown.program.acted == []
        assert not [each for each in told if shown.access.token in each]
        assert not [each for each in told if "Cookie" in each]
    # In this tab it may still act, also on the page of a batch.
    shown.open(f"?batch={START_MS + 1000}")
    shown.wait_for("Details of batch at", "#batch-head")
    shown.browser.find_element(By.LINK_TEXT, "All batches").click()
    shown.wait_for("Set the rate", "#acting")
    shown.browser.find_element(By.ID, "pause").click()
    shown.wait_for("is paused", "#acted")
    assert shown.program.acted == [("pause", 0)]


def test_a_link_that_was_used_says_so(shown: Shown) -> None:
    code = shown.access.new_code()
    assert shown.access.take_code(code)
    shown.open(f"#code={code}")
    shown.wait_for("this link was used already, or is of another run", "#refused")
    shown.wait_for("You are looking only")
    # A new one that is pasted into the same tab is taken.
    shown.open(f"#code={shown.access.new_code()}")
    shown.wait_for("Set the rate", "#acting")
    assert shown.text("#refused") == ""


def test_where_spark_asks_who_may_look_the_page_says_how(browser: Chrome) -> None:
    program = Program()
    program.start()
    program.model.tick()
    access = Access(is_open=False)
    routes = Routes(program.model, access)
    with serving(routes.answer) as server:
        shown = Shown(program, access, server, browser)
        shown.open()
        shown.wait_for("open the page by the link", "#sentence")
        assert "a <b>program</b>" not in shown.text()
        shown.open(f"#code={access.new_code()}")
        shown.wait_for("a <b>program</b>", "#name")
        browser.get("about:blank")
        routes.stop()


def discarded(folder: Path) -> LetterTail:
    """Have a receiver that discarded two records, of which one is meant to do harm."""
    place = DeadLetterPlace(str(folder), 0, "a" * 32, "Clicks", "h1", SyncPolicy.NONE)
    writer = DeadLetterWriter(place, lambda *_: None)
    for record in ("plain", "<script>alert(1)</script>"):
        writer.add(record, ValueError(f"no number: {record}"), record)
    writer.write()
    writer.close()
    return LetterTail(str(folder), None, but=-1, tell=lambda _: None)


@pytest.mark.parametrize("shows_samples", [False, True])
def test_dead_letters_are_counted_and_shown_only_where_that_is_allowed(
    browser: Chrome, tmp_path: Path, shows_samples: bool
) -> None:
    program = Program()
    program.start()
    program.model.application = replace(
        program.application(), letter_tail=lambda: discarded(tmp_path)
    )
    routes = Routes(program.model, open_access(), shows_samples=shows_samples)
    with serving(routes.answer) as server:
        shown = Shown(program, open_access(), server, browser)
        shown.open()
        program.model.tick()
        shown.wait_for("2 records were discarded", "#letters")
        told = shown.text("#letters")
        assert "ValueError" in told
        assert ("<script>alert(1)</script>" in told) is shows_samples
        assert ("no number" in told) is shows_samples
        assert shown.count("#letters script") == 0
        browser.get("about:blank")
        routes.stop()


def test_records_that_other_hosts_discarded_are_counted_by_receiver(shown: Shown) -> None:
    shown.program.second(8000, discarded=5)
    shown.open()
    shown.wait_for("penstock dead-letters shows them on those hosts", "#letters")
    told = shown.text("#letters")
    assert "Discarded by receivers" in told
    assert told.splitlines()[-2].endswith(" h1 5")


PREFIX = "/proxy/application_1"


@contextlib.contextmanager
def proxied(port: int) -> Iterator[int]:
    """Have the server under a longer path, as YARN's proxy and Spark's reverse proxy have it."""

    def serve(client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            head = b""
            while b"\r\n" not in head and (part := client.recv(1 << 16)):
                head += part
            if f" {PREFIX}/".encode() not in head:
                return  # Nothing else of that host is the program's.
            server.sendall(head.replace(PREFIX.encode(), b"", 1))
            back = threading.Thread(target=pass_on, args=(server, client))
            back.start()
            pass_on(client, server)
            back.join(WAIT_S)

    def pass_on(source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                to.sendall(part)
            to.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def test_it_works_behind_a_proxy_that_has_it_under_another_path(shown: Shown) -> None:
    direct = shown.address
    with proxied(int(direct.rstrip("/").rpartition(":")[2])) as port:
        shown.address = f"http://localhost:{port}{PREFIX}/"
        shown.open(f"#code={shown.access.new_code()}")
        shown.wait_for("60 completed batches", "#since")
        WebDriverWait(shown.browser, WAIT_S).until(lambda _: shown.count("#charts svg") == 5)
        shown.wait_for("Set the rate", "#acting")
        shown.browser.find_element(By.ID, "pause").click()
        shown.wait_for("is paused", "#acted")
        shown.browser.find_element(By.CSS_SELECTOR, "#completed tbody tr:first-child a").click()
        shown.wait_for("Details of batch at", "#batch-head")
        shown.browser.find_element(By.LINK_TEXT, "All batches").click()
        shown.wait_for("60 completed batches", "#since")
        assert shown.browser.current_url == shown.address
        shown.open("streaming/batch/?id=1")
        shown.wait_for("there is no such batch", "#batch-head")
        shown.browser.get("about:blank")


@pytest.mark.long
def test_it_can_be_used_with_a_keyboard_and_says_what_everything_is(shown: Shown) -> None:
    shown.program.receiver(error="the source is gone", trace="Traceback of it")
    shown.program.model.tick()
    shown.open(f"#code={shown.access.new_code()}")
    shown.wait_for("Set the rate", "#acting")
    shown.wait_for("the source is gone", "#receivers")
    reached: dict[str, str] = {}
    for _ in range(400):
        ActionChains(shown.browser).send_keys(Keys.TAB).perform()
        focus = shown.browser.switch_to.active_element
        if focus.tag_name == "body":
            break
        reached.setdefault(focus.get_attribute("id") or focus.tag_name, focus.accessible_name)
        if focus.get_attribute("aria-expanded") == "false":
            outline = focus.value_of_css_property("outline-style")
            assert outline == "solid"
            ActionChains(shown.browser).send_keys(Keys.ENTER).perform()
        if focus.get_attribute("id") == "stop":
            break
    assert reached["span"].startswith("Time shown")
    assert reached["rate-stream"].startswith("Stream")
    assert reached["rate-value"].startswith("Rate")
    assert {"a", "summary", "button", "pause", "resume", "restart", "seal", "stop"} <= {*reached}
    assert all(reached.values()), reached
    assert "Traceback of it" in shown.text("#receivers")
    ActionChains(shown.browser).send_keys(Keys.ENTER).perform()
    shown.browser.switch_to.alert.accept()
    shown.wait_for("stopping gracefully", "#acted")
    # A person who hears it: news are said, tables and charts have names, heads belong to columns.
    browser = shown.browser
    assert browser.find_element(By.ID, "sentence").get_attribute("aria-live") == "polite"
    assert browser.find_element(By.ID, "lost").get_attribute("role") == "alert"
    for chart in browser.find_elements(By.CSS_SELECTOR, "#charts svg"):
        assert chart.aria_role in ("image", "img")
        assert chart.accessible_name
    for head in browser.find_elements(By.CSS_SELECTOR, "thead th"):
        assert head.get_attribute("scope") == "col"
    assert browser.find_element(By.CSS_SELECTOR, "html").get_attribute("lang") == "en"


def test_ten_thousand_batches_do_not_slow_it(browser: Chrome) -> None:
    program = Program(retained_batches=10_000)
    program.start()
    program.receiver()
    for number in range(1, 10_001):
        program.batch(number)
    program.second(100)
    routes = Routes(program.model, open_access())
    with serving(routes.answer) as server:
        shown = Shown(program, open_access(), server, browser)
        shown.open()
        shown.wait_for("10,000 completed batches", "#since")
        # What is told and shown of them is as much as of the last hundred.
        assert shown.count("#completed tbody tr") == 100
        assert len(Status(program.model).answer(get("/api/penstock/status")).body) < 100_000  # type: ignore[union-attr]
        shown.open(f"?batch={START_MS + 1000}")
        shown.wait_for("Details of batch at", "#batch-head")
        browser.get("about:blank")
        routes.stop()


@pytest.mark.parametrize("width", [1300, 1800])
@pytest.mark.parametrize("receivers", [1, 20, 200])
def test_all_of_it_is_within_the_window(browser: Chrome, width: int, receivers: int) -> None:
    names = ("clicks", "KafkaReceiver", "readings of all sensors of the plant")
    program = Program(streams={number: names[number % 3] for number in range(receivers)})
    program.start()
    error = "ConnectionError: broker 10.0.0.7:9092 is gone (/app/shop.py:19 in orders) " * 3
    for number in range(receivers):
        program.receiver(number, limit=8000.0, source="estimator")
        program.report(number)
    program.receiver(0, state="stopped", error=error)
    program.clock.advance(1000)
    for number in range(1, receivers):
        program.report(number, 8_000, 1.0, rate_s=0.5, log_s=0.25, busy_s=0.25, source_lag=1 << 40)
    program.batch(1, errors=("no such table: " + "x" * 300,))
    program.model.tick()
    routes = Routes(program.model, open_access())
    with serving(routes.answer) as server:
        shown = Shown(program, open_access(), server, browser)
        browser.set_window_size(width, 1000)
        try:
            shown.open()
            shown.wait_for("no such table", "#completed")
            WebDriverWait(browser, WAIT_S).until(lambda _: shown.count("#charts svg path") > 0)
            assert browser.execute_script(TOO_WIDE) == []
            # What is wrong comes first, and within sight.
            assert "broker 10.0.0.7" in shown.text("#receivers tbody tr:first-child")
            place = browser.find_element(By.ID, "receivers").rect
            assert place["height"] < 1_000
            browser.get("about:blank")
        finally:
            browser.set_window_size(1280, 900)
            routes.stop()


TOO_WIDE = """
return [document.documentElement, ...document.querySelectorAll("body *:not(svg *)")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1
    && !["inline", "none"].includes(getComputedStyle(each).display))
  .map((each) => [each.scrollWidth, each.clientWidth, each.id || each.outerHTML.slice(0, 100)]);
"""


def test_it_can_be_read_on_a_phone(shown: Shown) -> None:
    shown.browser.set_window_size(500, 800)
    try:
        shown.open()
        shown.wait_for("60 completed batches", "#since")
        wide = "return document.documentElement.scrollWidth > window.innerWidth"
        assert shown.browser.execute_script(wide) is False
    finally:
        shown.browser.set_window_size(1280, 900)


@pytest.mark.long
def test_it_says_when_the_program_is_gone_and_goes_on_when_it_is_back(browser: Chrome) -> None:
    program = Program()
    program.start()
    routes = Routes(program.model, open_access())
    with serving(routes.answer) as server:
        port = server.port
        shown = Shown(program, open_access(), server, browser)
        shown.open()
        shown.wait_for("a <b>program</b>", "#name")
        routes.stop()
    lost = browser.find_element(By.ID, "lost")
    WebDriverWait(browser, WAIT_S).until(lambda _: lost.is_displayed())
    again = Routes(program.model, open_access())
    server = WebServer("127.0.0.1", iter([port]), again.answer)
    server.start()
    try:
        WebDriverWait(browser, WAIT_S).until(lambda _: not lost.is_displayed())
    finally:
        again.stop()
        server.stop(WAIT_S)


@pytest.mark.exhaustive  # That the page works in the browser is shown by the others.
def test_a_picture_is_taken_of_a_running_program(sc: SparkContext, tmp_path: Path) -> None:
    file = tmp_path / "page.png"
    try:
        text = take_picture(sc, file, 8.0, tmp_path)
    except BrowserMissingError as error:
        pytest.skip(f"platform: {error}")
    assert file.read_bytes().startswith(b"\x89PNG")
    for told in ("clicks-0", "orders-1", "2 / 2 active", "clicks: 300 records/s (user)"):
        assert told in text
