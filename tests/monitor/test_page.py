"""The page's files and its events; what a person sees of it is tried in `test_browser`."""

from __future__ import annotations

import gc
import json
import re
import socket
import weakref
from dataclasses import replace
from typing import Any

import pytest

from penstock.monitor.web.routes import Live, Routes
from penstock.monitor.web.server import Bounds
from penstock.monitor.web.status import Status
from penstock.receiver.blocks.discards import Discards
from penstock.wire.messages import SlowBlock
from tests.monitor.asking import connect, get, open_access, read, serving, text
from tests.monitor.feeding import START_MS, Program

HEAD = b"Host: localhost\r\n\r\n"


@pytest.fixture
def program() -> Program:
    program = Program()
    program.start()
    program.receiver()
    program.batch(1)
    program.second(10)
    return program


@pytest.fixture
def door(program: Program) -> Routes:
    return Routes(program.model, open_access())


def test_the_page_asks_no_other_host_and_only_by_relative_links(door: Routes) -> None:
    page = text(door.answer(get("/")))
    links = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(links) >= 4
    for link in links:
        assert not re.match(r"[a-z]+:(?!,)|/", link), link
        if link.startswith("static/"):
            assert door.answer(get(f"/{link}")).status == 200
    script = text(door.answer(get("/static/page.js")))
    assert not re.search(r"""["'`]/|https?://""", script)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_all_of_its_files_are_small_and_our_own(door: Routes) -> None:
    page = text(door.answer(get("/")))
    files = re.findall(r'(?:src|href)="(static/[^"]*)"', page)
    script = text(door.answer(get("/static/page.js")))
    files += [f"static/{name}" for name in re.findall(r'from "\./([^"]*)"', script)]
    assert len(files) == 5
    size = len(page)
    for name in files:
        found = text(door.answer(get(f"/{name}")))
        assert not re.search(r"license|copyright|https?://", found, re.IGNORECASE), name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", found
        )
        size += len(found)
    assert size < 64_000


@pytest.mark.parametrize(
    "path", ["/static/", "/static/../page.py", "/static/%2e%2e/page.py", "/static/index.html"]
)
def test_nothing_but_the_pages_own_files_is_there(door: Routes, path: str) -> None:
    assert door.answer(get(path)).status == 404


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("/streaming", "./"),
        ("/streaming/", "../"),
        ("/streaming/batch/?id=5", "../../?batch=5"),
        ("/streaming/batch?id=%22%3E", "../?batch=%22%3E"),
    ],
)
def test_the_addresses_of_sparks_tab_lead_to_the_page(door: Routes, path: str, to: str) -> None:
    answer = door.answer(get(path))
    assert (answer.status, answer.headers["Location"]) == (302, to)


def test_the_status_has_what_the_page_shows(program: Program, door: Routes) -> None:
    program.batch(2, errors=(None, "no such table"), description="a topic")
    found = read(door.answer(get("/api/penstock/status")))
    assert found["application"]["name"] == "a <b>program</b>"
    assert found["totals"]["completedBatches"] == 2
    assert found["batches"][0]["error"] == "ValueError: no such table"
    assert (found["batches"][0]["planningMs"], found["batches"][0]["running"]) == (0, [])
    (receiver,) = found["receivers"]
    assert receiver["waits"]["source"] == 100
    assert receiver["latencyMs"] == [12.5, 80.0]
    assert receiver["log"]["segments"] == 3
    assert receiver["lagRecords"] is None
    assert receiver["lagMs"] is None
    program.second(10, source_lag=4_000, source_lag_ms=1_500)
    (receiver,) = read(door.answer(get("/api/penstock/status")))["receivers"]
    assert (receiver["lagRecords"], receiver["lagMs"]) == (4_000, 1_500)
    batch = read(door.answer(get(f"/api/penstock/batch?id={START_MS + 2000}")))
    assert batch["inputs"] == [{"stream": 0, "records": 100, "description": "a topic"}]
    assert [operation["jobs"] for operation in batch["operations"]] == [[7, 8], [7, 9]]
    assert "no such table" in batch["operations"][1]["error"]
    history = read(door.answer(get("/api/penstock/history?seconds=60")))
    assert history["totals"][-1][history["names"].index("processing_ms")] == 300
    assert history["streams"]["0"]["waits"][-1][history["waitNames"].index("source")] == 100


def test_what_is_told_again_is_what_it_is_by_then(program: Program, door: Routes) -> None:
    def told() -> Any:
        found = read(door.answer(get("/api/penstock/status")))
        return [(b["id"] - START_MS, b["status"], b["records"]) for b in found["batches"]]

    program.batch(2, records=5, waits_ms=-1)
    assert told() == [(2000, "QUEUED", 5), (1000, "COMPLETED", 100)]
    program.batch(2, records=5)
    assert told() == told() == [(2000, "COMPLETED", 5), (1000, "COMPLETED", 100)]
    for number in range(3, 150):
        program.batch(number, records=number)
    newest = [(1000 * number, "COMPLETED", number) for number in range(149, 49, -1)]
    assert told() == newest
    program.model.note("a note")
    events = read(door.answer(get("/api/penstock/status")))["events"]
    assert [event["text"] for event in events][-1] == "a note"
    assert events == read(door.answer(get("/api/penstock/status")))["events"]


def test_what_is_told_no_more_is_not_kept() -> None:
    program = Program(retained_batches=3)
    program.start()
    door = Routes(program.model, open_access())
    program.batch(1)
    read(door.answer(get("/api/penstock/status")))
    first = weakref.ref(program.model.batches()[0])
    assert first() is not None
    for number in range(2, 7):
        program.batch(number)
    read(door.answer(get("/api/penstock/status")))
    gc.collect()
    assert first() is None


def test_names_that_are_no_text_and_enormous_numbers_can_be_told() -> None:
    program = Program(streams={0: "access\udcff.log"})
    program.start()
    program.receiver(state="stopped", error="no such file: 'access\udcff.log'")
    program.batch(1, records=1 << 70)
    program.model.tick()
    status = read(Routes(program.model, open_access()).answer(get("/api/penstock/status")))
    assert status["streams"][0]["name"] == "access\udcff.log-0"
    assert status["batches"][0]["records"] == 1 << 70
    assert "access\udcff.log" in status["events"][-1]["text"]


def test_a_batch_says_what_it_is_at(program: Program, door: Routes) -> None:
    def newest() -> Any:
        return read(door.answer(get("/api/penstock/status")))["batches"][0]

    program.batch(3, waits_ms=-1, plans_ms=40)
    found = newest()
    assert (found["status"], found["planningMs"]) == ("QUEUED", 40)
    assert (found["schedulingDelayMs"], found["running"]) == (None, [])
    job_set = program.batch(4, takes_ms=None, plans_ms=50, errors=(None, None))
    found = newest()
    assert (found["planningMs"], found["schedulingDelayMs"]) == (50, 10)
    assert found["running"] == ["pprint at program.py:0", "pprint at program.py:1"]
    program.end(job_set.results[0], job_set.start_ms + 5, None)
    assert newest()["running"] == ["pprint at program.py:1"]


def test_a_batch_says_which_blocks_were_slow_to_read(program: Program, door: Routes) -> None:
    program.slow_blocks += [
        SlowBlock(0, "input-0-7", 3.21, "h2", "memory /m: gone", START_MS + 1000),
        SlowBlock(0, "input-0-8", 1.5, "h1"),
    ]
    program.second(10)
    batch = read(door.answer(get(f"/api/penstock/batch?id={START_MS + 1000}")))
    assert batch["slowBlocks"] == ["It took 3.2 s to read block input-0-7 on h2"]
    first, second = read(door.answer(get("/api/penstock/status")))["events"][-2:]
    assert (first["kind"], first["detail"]) == ("block slow to read", "memory /m: gone")
    assert (first["batch"], second["batch"]) == (START_MS + 1000, None)


def test_what_receivers_discarded_is_told_wherever_they_run(program: Program, door: Routes) -> None:
    program.second(10, discarded=3)
    (receiver,) = read(door.answer(get("/api/penstock/status")))["receivers"]
    assert receiver["discardedRecords"] == 3
    told = 'penstock_discarded_records_total{stream="numbers",stream_id="0"} '
    assert f"{told}3.0" in text(door.answer(get("/metrics")))
    # A counter only grows: what earlier attempts discarded is counted, also while none runs.
    program.receiver(state="stopped")
    program.model.tick()
    assert f"{told}3.0" in text(door.answer(get("/metrics")))
    program.receiver()
    program.attempt = "b"
    program.report(at_s=20.0, discarded=2)
    program.model.tick()
    assert f"{told}5.0" in text(door.answer(get("/metrics")))


def test_what_receivers_dropped_is_told_by_stream(program: Program, door: Routes) -> None:
    program.second(10)
    program.statuses[0] = replace(program.statuses[0], dropped=1_234)
    program.second(10)
    (receiver,) = read(door.answer(get("/api/penstock/status")))["receivers"]
    assert receiver["droppedRecords"] == 1_234
    assert receiver["troubles"] == ["dropped 1,234 records in the last five minutes"]
    told = 'penstock_dropped_records_total{stream="numbers",stream_id="0"} 1234.0'
    assert told in text(door.answer(get("/metrics")))
    for _ in range(310):
        program.second(10)
    (receiver,) = read(door.answer(get("/api/penstock/status")))["receivers"]
    assert (receiver["droppedRecords"], receiver["troubles"]) == (1_234, [])


@pytest.mark.parametrize("shows_samples", [False, True])
def test_errors_of_receivers_show_records_only_where_samples_are_shown(shows_samples: bool) -> None:
    told: list[tuple[str, BaseException]] = []
    discards = Discards(lambda *each: told.append(each), lambda: 0.0)
    for _ in range(20):
        with discards.stored_with("secret place"):
            discards.add(ValueError("no number: secret reason"), lambda: "secret record")
    discards.tell_rest(at_once=True)
    program = Program(shows_samples=shows_samples)
    program.start()
    door = Routes(program.model, open_access(), shows_samples=shows_samples)
    for message, reason in (told[0], told[-1]):
        count = message.partition(" discarded")[0]
        program.receiver(error=message, trace=f"Traceback\nValueError: {reason}")
        program.model.tick()
        program.receiver(state="stopped", error=message, trace=f"Traceback\nValueError: {reason}")
        program.second(1)
        for path in (
            *("/api/penstock/status", "/api/penstock/errors", "/health/ready"),
            "/api/v1/applications/local-1/streaming/receivers",
        ):
            answer = door.answer(get(path)).body
            assert isinstance(answer, bytes)
            assert f"{count} discarded" in answer.decode(), path
            assert (b"secret" in answer) is shows_samples, path


def test_a_program_that_fails_again_and_again_does_not_tell_all_of_it_every_second() -> None:
    program = Program()
    door = Routes(program.start(), open_access())
    for number in range(1, 251):
        program.batch(number, errors=(f"no such table {number}\n" + "x" * 30_000 + "the end",))
    told = door.answer(get("/api/penstock/status")).body
    assert isinstance(told, bytes)
    assert len(told) < 1_000_000
    detail = json.loads(told)["events"][-1]["detail"]
    assert "no such table 250" in detail
    assert "the end" in detail
    errors = read(door.answer(get("/api/penstock/errors")))
    assert len(errors[-1]["detail"]) > 15_000


def test_figures_over_time_are_bounded_however_many_receivers_there_are() -> None:
    program = Program(streams=dict.fromkeys(range(16), "numbers"))
    door = Routes(program.start(), open_access())
    for number in range(16):
        program.receiver(number)
    for second in range(300):
        program.clock.advance(1000)
        for number in range(16):
            program.report(number, at_s=second + 1.0)
        program.model.tick()
    path = "/api/penstock/history?seconds"
    found = read(door.answer(get(f"{path}=600")))
    assert found["stepS"] == 2
    assert 149 <= len(found["totals"]) <= 151
    figures = [row for told in found["streams"].values() for rows in told.values() for row in rows]
    assert sum(map(len, figures)) < 60_000
    for seconds, step_s in ((60, 1), (3600, 20), (86_400, 250)):
        told = read(door.answer(get(f"{path}={seconds}")))
        assert told["stepS"] == step_s
        assert len(told["streams"]["3"]["figures"]) <= 360


def test_who_knows_the_figures_until_now_asks_for_the_later_ones_only(
    program: Program, door: Routes
) -> None:
    for _ in range(30):
        program.second(10)
    path = "/api/penstock/history?seconds=60"
    before = read(door.answer(get(path)))
    last_s = before["totals"][-1][0]
    program.second(10)
    more = read(door.answer(get(f"{path}&since={last_s}")))
    assert [row[0] for row in more["totals"]] == [last_s, last_s + 1]
    assert more["totals"][0] == before["totals"][-1]
    assert [row[0] for row in more["streams"]["0"]["waits"]] == [last_s, last_s + 1]
    assert read(door.answer(get(f"{path}&since={last_s + 99}")))["totals"] == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/penstock/batch", 404),
        ("/api/penstock/batch?id=5", 404),
        ("/api/penstock/batch?id=x", 404),
        ("/api/penstock/history?seconds=x", 400),
        ("/api/penstock/history?seconds=99999999999999999999", 400),
        ("/api/penstock/history?seconds=0", 400),
        ("/api/penstock/history?since=-1", 400),
        ("/api/penstock/batches?offset=-1", 400),
        ("/api/penstock/batches?count=100000", 400),
        ("/api/penstock/batches?status=late", 400),
    ],
)
def test_nonsense_in_a_query_is_refused(door: Routes, path: str, status: int) -> None:
    assert door.answer(get(path)).status == status


def test_who_looks_is_told_whether_he_may_act(program: Program) -> None:
    access = open_access()
    door = Routes(program.model, access)
    assert read(door.answer(get("/api/penstock/me"))) == {"mayAct": False}
    proof = f"Bearer {access.token}"
    assert read(door.answer(get("/api/penstock/me", Authorization=proof))) == {"mayAct": True}


def events(connection: socket.socket, count: int) -> list[dict[str, object]]:
    """Read so many events from a stream."""
    found = b""
    while found.count(b"data: ") < count or not found.endswith(b"\n\n"):
        part = connection.recv(1 << 16)
        assert part, found[-200:]
        found += part
    lines = [line for line in found.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line[len("data: ") :]) for line in lines]


@pytest.mark.slow
def test_news_comes_by_itself_and_is_the_same_for_all(program: Program, door: Routes) -> None:
    with serving(door.answer) as server, connect(server) as one, connect(server) as other:
        for connection in (one, other):
            connection.sendall(b"GET /api/penstock/live HTTP/1.1\r\n" + HEAD)
        (first,), (same,) = events(one, 1), events(other, 1)
        assert first == same
        program.batch(2)
        (second,) = events(one, 1)
        assert second["totals"] != first["totals"]
        door.stop()
        while one.recv(1 << 16):
            pass


def test_who_listens_is_let_go_when_the_program_ends(program: Program, door: Routes) -> None:
    with serving(door.answer) as server:
        connection = connect(server)
        connection.sendall(b"GET /api/penstock/live HTTP/1.1\r\n" + HEAD)
        events(connection, 1)
    while connection.recv(1 << 16):
        pass
    connection.close()


@pytest.mark.slow
def test_a_thousand_who_listen_do_not_keep_others_out(program: Program, door: Routes) -> None:
    bounds = Bounds(connections=100, streams=30)
    with serving(door.answer, bounds) as server:
        listening, turned_away = [], 0
        for _ in range(1000):
            connection = connect(server)
            connection.sendall(b"GET /api/penstock/live HTTP/1.1\r\n" + HEAD)
            try:
                status = connection.recv(12)
            except ConnectionResetError:
                status = b""
            if status == b"HTTP/1.1 200":
                listening.append(connection)
            else:
                turned_away += 1
                connection.close()
        assert len(listening) == 30
        assert turned_away == 970
        with connect(server) as connection:
            connection.sendall(b"GET /health/live HTTP/1.1\r\n" + HEAD)
            assert connection.recv(12) == b"HTTP/1.1 200"
        for connection in listening:
            connection.close()


def test_without_news_little_is_said(program: Program) -> None:
    live = Live(program.model, Status(program.model), interval_s=0.0)
    told = live.answer().body
    assert not isinstance(told, bytes)
    assert next(told).startswith(b"retry")
    assert next(told).startswith(b"data: ")
    quiet = [next(told) for _ in range(30)]
    assert quiet.count(b":\n\n") == 2
    assert set(quiet) == {b"", b":\n\n"}
    live.stop()
    assert list(told) == []
