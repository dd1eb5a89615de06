"""What may be done to a running program, by whom."""

from __future__ import annotations

import pytest

from penstock.dead_letters import letter_key
from penstock.monitor.records import EventKind
from penstock.monitor.web.access import Access
from penstock.monitor.web.exchange import Answer, Request
from penstock.monitor.web.routes import Routes
from tests.monitor.asking import open_access, post, read, text
from tests.monitor.feeding import Program, rate_of


@pytest.fixture
def program() -> Program:
    program = Program(streams={0: "numbers", 1: "words", 5: "words"})
    program.start()
    return program


def act(program: Program, action: str, body: object, access: Access | None = None) -> Answer:
    access = access or open_access()
    return Routes(program.model, access).answer(
        post(
            f"/api/penstock/actions/{action}",
            body,
            Authorization=f"Bearer {access.token}",
            Content_Type="application/json",
        )
    )


@pytest.mark.parametrize(
    ("stream", "number"), [(0, 0), ("0", 0), ("numbers", 0), ("numbers-0", 0), ("words-5", 5)]
)
def test_a_rate_is_set_by_the_streams_number_or_name(
    program: Program, stream: object, number: int
) -> None:
    done = read(act(program, "rate", {"stream": stream, "rate": "5000/second"}))
    assert program.acted == [("rate", number, "5000/second")]
    assert done["done"].endswith(": rate 5000/second")
    told = program.model.events()[-1]
    assert (told.kind, told.stream_id) == (EventKind.ACTION, number)


@pytest.mark.parametrize("stream", ["words", "nothing", None, 7, [], {}, True, 1.0])
def test_a_stream_that_is_not_clear_is_refused_with_the_names(
    program: Program, stream: object
) -> None:
    refused = act(program, "rate", {"stream": stream, "rate": "5"})
    assert refused.status == 400
    assert "there are numbers-0, words-1, words-5" in text(refused)
    assert program.acted == []


def test_a_rate_can_be_taken_back_and_nonsense_is_refused_with_what_is_accepted(
    program: Program,
) -> None:
    assert act(program, "rate", {"stream": 0, "rate": None}).status == 200
    refused = act(program, "rate", {"stream": 0})
    assert (refused.status, text(refused)) == (
        400,
        "rate is missing: null is for no rate of its own",
    )
    refused = act(program, "rate", {"stream": 0, "rate": "-5"})
    assert (refused.status, text(refused)) == (
        400,
        "rate='-5' is not accepted: it must be above 0",
    )
    assert program.acted == [("rate", 0, None)]


def test_it_is_stopped_gracefully_unless_told_otherwise(program: Program) -> None:
    assert read(act(program, "stop", {})) == {"done": "stopping gracefully"}
    assert read(act(program, "stop", {"graceful": False})) == {"done": "stopping at once"}
    assert act(program, "stop", {"graceful": "no"}).status == 400
    assert program.acted == [("stop", True), ("stop", False)]


@pytest.mark.parametrize("action", ["pause", "resume", "restart", "seal"])
def test_a_receiver_is_paused_goes_on_and_is_restarted(program: Program, action: str) -> None:
    assert act(program, action, {"stream": "numbers"}).status == 200
    assert program.acted == [(action, 0)]
    assert program.model.events()[-1].kind is EventKind.ACTION
    assert act(program, action, {"stream": "nothing"}).status == 400
    assert program.acted == [(action, 0)]


@pytest.mark.parametrize("action", ["rate", "pause", "restart", "seal", "stop", "login", "nothing"])
def test_nobody_acts_without_the_token(program: Program, action: str) -> None:
    door = Routes(program.model, open_access())
    path = f"/api/penstock/actions/{action}"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        refused = door.answer(post(path, {}, Content_Type="application/json", **headers))
        assert refused.status == 403
        assert "token of the run" in text(refused)
    assert program.acted == []


def test_a_form_of_another_page_cannot_act(program: Program) -> None:
    access = open_access()
    door = Routes(program.model, access)
    proof = {"Authorization": f"Bearer {access.token}"}
    path = "/api/penstock/actions/stop"
    refused = door.answer(post(path, {}, Content_Type="text/plain", **proof))
    assert refused.status == 415
    foreign = {"Content_Type": "application/json", "Origin": "http://evil.example"}
    refused = door.answer(post(path, {}, **foreign, **proof))
    assert refused.status == 403
    assert program.acted == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 16_000, b'"x"'])
def test_a_body_of_nonsense_is_refused(program: Program, body: bytes) -> None:
    access = open_access()
    headers = {
        "Host": "localhost",
        "Authorization": f"Bearer {access.token}",
        "Content-Type": "application/json",
    }
    request = Request.of("POST", "/api/penstock/actions/stop", headers, body)
    assert Routes(program.model, access).answer(request).status == 400
    assert program.acted == []


def test_what_is_not_there_is_told(program: Program) -> None:
    missing = act(program, "explode", {})
    assert (missing.status, text(missing)) == (
        404,
        (
            "there is no such action; there are rate, pause, resume, restart, seal, stop, send, "
            "tap, login"
        ),
    )


def test_a_link_for_a_browser_is_had_with_the_token_and_works_once(program: Program) -> None:
    access = open_access()
    link = read(act(program, "login", {}, access))["done"]
    # What stands behind a # no server and no proxy writes into a log.
    assert link.startswith("#code=")
    code = link.partition("code=")[2]
    assert access.take_code(code)
    assert not access.take_code(code)


@pytest.mark.parametrize(("source", "status"), [("paused", 409), ("user", 200)])
def test_dead_letters_are_not_sent_to_a_stream_that_is_paused(
    program: Program, source: str, status: int
) -> None:
    program.rates[0] = rate_of(0, 0.0, source)
    answer = act(program, "send", {"stream": 0, "letters": [["log", 1, ""], ["log", 2, "0a" * 16]]})
    assert answer.status == status
    if status == 409:
        assert "numbers-0 is paused: resume it, or nothing of it passes" in text(answer)
        assert program.acted == []
    else:
        assert read(answer)["done"] == {"sent": 2, "left": [], "isOther": False}
        first, second = ("log", 1), ("log", 2)
        asked = [(first, letter_key(first, None)), (second, b"\n" * 16)]
        assert program.acted == [("send", 0, asked, False)]


def test_dead_letters_of_another_program_are_not_sent(program: Program) -> None:
    asked = {"stream": 0, "letters": [["log", 1, ""]], "program": "meters-" + "0" * 32}
    answer = act(program, "send", asked)
    assert read(answer)["done"] == {"sent": 0, "left": [], "isOther": True}
    assert program.acted == []
