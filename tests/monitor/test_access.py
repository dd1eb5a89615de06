"""Who may look, and who may act."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.monitor.web.access import Access
from penstock.monitor.web.exchange import Request
from penstock.monitor.web.routes import Routes
from tests.monitor.asking import get, open_access, post, read, text
from tests.monitor.feeding import Program

LOGIN = "/api/penstock/login"
ROOT = "/api/v1/applications/local-1/streaming"


def routes(access: Access) -> Routes:
    return Routes(Program().start(), access)


@pytest.mark.parametrize("path", ["/metrics", f"{ROOT}/statistics", f"{ROOT}/batches"])
def test_where_spark_asks_who_may_look_nobody_does_without_the_token(path: str) -> None:
    access = Access(is_open=False)
    door = routes(access)
    refused = door.answer(get(path))
    assert refused.status == 403
    assert "spark.acls.enable" in text(refused)
    assert "PENSTOCK_TOKEN" in text(refused)
    assert "not this run's" not in text(refused)
    assert access.token not in text(refused)
    wrong = door.answer(get(path, Authorization="Bearer wrong"))
    assert wrong.status == 403
    assert text(wrong).startswith("the token that was sent is not this run's")
    assert door.answer(get(path, Authorization=f"Bearer {access.token}")).status == 200
    assert routes(open_access()).answer(get(path)).status == 200


def test_the_page_itself_is_there_for_all_and_has_nothing_of_the_program() -> None:
    door = routes(Access(is_open=False))
    page = door.answer(get("/"))
    assert page.status == 200
    assert "program</b>" not in text(page)
    assert door.answer(get("/static/page.js")).status == 200
    for path in ("live", "status", "history", "dead-letters", "me"):
        assert door.answer(get(f"/api/penstock/{path}")).status == 403


def test_a_link_is_worth_the_token_once() -> None:
    access = Access(is_open=False)
    door = routes(access)
    code = {"code": access.new_code()}
    refused = door.answer(post(LOGIN, code, Origin="http://localhost:4141"))
    assert refused.status == 403
    let_in = door.answer(post(LOGIN, code, Origin="http://localhost:4140"))
    assert read(let_in) == {"token": access.token}
    # No browser keeps it by itself, and sends it to other ports.
    assert not let_in.headers
    again = door.answer(post(LOGIN, code))
    assert (again.status, "used already" in text(again)) == (403, True)
    for nonsense in ({}, {"code": 5}, {"code": ""}, {"code": "\udcff"}):
        assert door.answer(post(LOGIN, nonsense)).status == 403
    assert door.answer(post(LOGIN, [])).status == 400
    assert door.answer(get(LOGIN)).status == 403


def test_links_that_nobody_used_do_not_pile_up() -> None:
    access = Access(is_open=False)
    codes = [access.new_code() for _ in range(100)]
    assert not access.take_code(codes[0])
    assert access.take_code(codes[-1])


def test_no_cookie_is_worth_the_token() -> None:
    access = Access(is_open=False)
    assert not access.has_token(get("/", Cookie=f"penstock={access.token}"))
    assert access.has_token(get("/", Authorization=f"Bearer {access.token}"))


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("localhost:4140", True),
        ("127.0.0.1:4140", True),
        ("[::1]:4140", True),
        ("10.0.0.7", True),
        ("driver.example:80", True),
        ("DRIVER.example.", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
        ("localhost@evil.example", False),
        ("evil.example@localhost", False),
        ("localhost/evil.example", False),
        ("evil.example#localhost", False),
        ("[::1", False),
    ],
)
def test_a_name_of_another_site_that_leads_here_is_turned_away(host: str, is_known: bool) -> None:
    access = open_access(names=["driver.example"])
    assert routes(access).answer(get("/", Host=host)).status == (200 if is_known else 421)


@pytest.mark.parametrize(
    ("headers", "may"),
    [
        ({}, True),
        ({"Origin": "http://localhost:4140"}, True),
        ({"Origin": "http://localhost:4140", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://localhost:4141"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
    ],
)
def test_a_page_of_another_origin_cannot_act_although_it_has_the_token(
    headers: dict[str, str], may: bool
) -> None:
    access = open_access()
    named = {name.replace("-", "_"): value for name, value in headers.items()}
    request = post("/x", {}, Authorization=f"Bearer {access.token}", **named)
    assert access.may_act(request) is may


def test_reading_is_no_right_to_act() -> None:
    access = open_access()
    assert access.may_read(get("/"))
    assert not access.may_act(post("/x", {}))
    assert not access.may_act(post("/x", {}, Authorization="Bearer "))
    assert access.may_act(post("/x", {}, Authorization=f"bearer {access.token}"))


@given(st.text(max_size=30))
def test_no_nonsense_is_taken_for_the_token(authorization: str) -> None:
    request = Request("GET", "/", {}, {"authorization": authorization})
    assert not Access(is_open=False).has_token(request)


def test_a_probe_needs_no_token_and_learns_no_reasons() -> None:
    program = Program()
    program.start()
    program.receiver(state="stopped", error="a secret place")
    program.model.tick()
    access = Access(is_open=False)
    door = Routes(program.model, access)
    assert door.answer(get("/health/live", Host="10.1.2.3:80")).status == 200
    unready = door.answer(get("/health/ready"))
    assert (unready.status, text(unready)) == (503, "")
    told = door.answer(get("/health/ready", Authorization=f"Bearer {access.token}"))
    assert text(told) == "numbers-0 does not run: a secret place"
