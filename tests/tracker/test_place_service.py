"""What queries are answered about the places of a stream, without Spark or a network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.tracker import Places
from penstock.tracker.consumers.place_service import _BLOCKS_PER_ANSWER
from penstock.wire.messages import (
    BlocksAt,
    EndAt,
    Failure,
    FindEnd,
    FindStream,
    Heartbeat,
    ListBlocks,
    Refused,
    StreamAt,
)
from tests.tracker.ledger_cases import add, block, ids
from tests.tracker.place_cases import DAY_S, SERVERS, Case


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_stream_is_found_by_its_name(case: Case) -> None:
    found = case.ask(FindStream("clicks"))
    assert found == StreamAt(0, case.epoch, 0, 5, "binary", None, 3)
    missing = case.ask(FindStream("orders"))
    assert isinstance(missing, Refused)
    assert "clicks" in missing.reason


def test_the_columns_are_not_known_before_the_first_block(tmp_path: Path) -> None:
    assert Case(tmp_path, count=0).ask(FindStream("clicks")).kind == ""


def test_a_schema_that_is_declared_is_known_at_once(tmp_path: Path) -> None:
    found = Case(tmp_path, count=0, schema=b"columns").ask(FindStream("clicks"))
    assert (found.kind, found.schema) == ("arrow", b"columns")


def test_a_time_is_the_place_of_what_came_then_or_later(case: Case) -> None:
    now_ms = case.clock.time_ms()
    assert case.ask(FindStream("clicks", now_ms)).place == 0
    assert case.ask(FindStream("clicks", now_ms + 1)).place == 5


def test_what_goes_while_a_time_is_looked_up_is_told(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a query would begin behind it, as if it had never come."""
    now_ms = case.clock.time_ms()
    case.end(0)
    case.commit(3)
    place_at = Places.place_at

    def after_release(places: Places, stream_id: int, time_ms: int) -> int:
        case.release()
        return place_at(places, stream_id, time_ms)

    monkeypatch.setattr(Places, "place_at", after_release)
    found = case.ask(FindStream("clicks", now_ms))
    assert (found.place, found.first, found.released_ms) == (3, 3, now_ms)


def test_an_end_counts_the_records_before_it(case: Case) -> None:
    assert case.end(1, max_records=20) == EndAt(3, 30, 0, 5, 0, 50, 10)
    assert case.end(5).place == 5


def test_who_only_looks_holds_nothing(case: Case) -> None:
    case.end(0, consumer="")
    assert case.consumers() == {}


def test_nobody_commits_nothing(case: Case) -> None:
    assert ids(case.list(2, 5, consumer="").blocks) == ids(case.blocks[2:])
    assert isinstance(case.commit(3, consumer=""), Refused)
    assert case.consumers() == {}


def test_what_a_consumer_asked_for_is_kept_for_it_also_what_is_yet_to_come(case: Case) -> None:
    case.end(2)
    case.end(5, consumer="at the end")
    assert case.consumers() == {"c": 2, "at the end": 5}
    case.commit(4)
    assert case.consumers() == {"c": 4, "at the end": 5}


def test_a_phantom_is_forgotten_with_the_batch_that_another_one_began(case: Case) -> None:
    case.end(0, consumer="real")
    case.end(3, consumer="phantom")
    answer = case.list(0, 5, consumer="real", phantom="phantom")
    assert ids(answer.blocks) == ids(case.blocks)
    assert case.consumers() == {"real": 0}


def test_a_later_page_of_a_batch_gives_nothing_away(tmp_path: Path) -> None:
    case = Case(tmp_path, count=_BLOCKS_PER_ANSWER + 10)
    case.list(3, _BLOCKS_PER_ANSWER + 10)
    case.list(_BLOCKS_PER_ANSWER, _BLOCKS_PER_ANSWER + 10, batch=3)
    assert case.consumers() == {"c": 3}


def test_who_is_known_by_a_later_page_first_is_held_where_its_batch_begins(tmp_path: Path) -> None:
    case = Case(tmp_path, count=_BLOCKS_PER_ANSWER + 10)
    case.list(_BLOCKS_PER_ANSWER, _BLOCKS_PER_ANSWER + 10, batch=3)
    assert case.consumers() == {"c": 3}
    case.release()
    assert case.list(3, 4).first == 3


def test_who_has_planned_a_batch_may_come_back_to_an_earlier_one(case: Case) -> None:
    """So does Spark after a restart, where it logs progress asynchronously."""
    case.end(0)
    case.list(0, 3)
    case.list(3, 5)
    case.release()
    assert case.consumers() == {"c": 0}
    assert ids(case.list(0, 5).blocks) == ids(case.blocks)
    assert ids(case.list(3, 5, consumer="planned elsewhere").blocks) == ids(case.blocks[3:])
    assert case.consumers() == {"c": 0, "planned elsewhere": 3}


def test_blocks_come_in_pages(tmp_path: Path) -> None:
    case = Case(tmp_path, count=_BLOCKS_PER_ANSWER + 10)
    first = case.list(0, _BLOCKS_PER_ANSWER + 10)
    assert isinstance(first, BlocksAt)
    assert first.servers == SERVERS
    found = ids(first.blocks)
    while len(found) < len(case.blocks):
        more = case.list(len(found), _BLOCKS_PER_ANSWER + 10)
        assert more.first == len(found)
        assert len(more.blocks) == len(more.added_ms) > 0
        found += ids(more.blocks)
    assert found == ids(case.blocks)


def test_who_asks_for_released_places_sees_where_the_rest_begins(case: Case) -> None:
    case.commit(3)
    case.ledger.places.release(case.service.retentions())
    answer = case.list(1, 5, consumer="late")
    assert answer.first == 3
    assert ids(answer.blocks) == ids(case.blocks[3:])
    assert case.end(1, consumer="late").first == 3


def test_places_of_another_ledger_are_refused_by_name(case: Case) -> None:
    answer = case.ask(ListBlocks(0, "another", "c", 0, 5))
    assert isinstance(answer, Refused)
    assert case.epoch in answer.reason
    assert "another" in answer.reason


def test_what_is_not_about_places_or_cannot_be_is_refused(case: Case) -> None:
    assert isinstance(case.ask(Heartbeat()), Refused)
    assert isinstance(case.ask(FindEnd(7, case.epoch, "c", 0)), Refused)
    assert isinstance(case.commit(6), Refused)


def test_a_query_is_told_of_a_ledger_that_was_removed_when_it_has_read_all(case: Case) -> None:
    assert case.end(5).place == 5
    shutil.rmtree(case.folder)
    blocks = [block(0, case.attempt, case.next_number)]
    assert isinstance(add(case.ledger, 0, case.attempt, blocks), Refused)
    answer = case.end(5)
    assert isinstance(answer, Failure)
    assert "did not take more blocks" in answer.reason
    assert "stop the program" in answer.reason
    # Who only looks is answered.
    assert case.end(5, consumer="").place == 5


def test_a_stream_whose_receiver_failed_for_good_ends_with_the_reason(case: Case) -> None:
    case.service.fail(0, "no such module")
    assert case.end(0).place == 5
    answer = case.end(5)
    assert isinstance(answer, Refused)
    assert "no such module" in answer.reason
    assert case.ask(FindStream("clicks")).next == 5


def test_columns_that_will_never_be_known_are_refused_with_the_reason(tmp_path: Path) -> None:
    case = Case(tmp_path, count=0)
    case.service.fail(0, "no such module")
    answer = case.ask(FindStream("clicks"))
    assert isinstance(answer, Refused)
    assert answer.reason == "nothing of stream 'clicks' will come: no such module"


def test_a_consumer_that_never_came_back_is_forgotten(tmp_path: Path) -> None:
    case = Case(tmp_path, consumer_timeout_s=2 * DAY_S)
    case.list(0, 5, consumer="sleeps")
    case.service.sweep()
    case.clock.advance(3 * DAY_S * 1000)
    # While they are connected nobody is forgotten.
    case.service.sweep()
    assert case.consumers() == {"sleeps": 0}
    case.service.disconnected(case.peer)
    case.service.sweep()
    case.clock.advance(3600 * 1000)
    case.service.sweep()
    assert case.consumers() == {"sleeps": 0}
    case.clock.advance(2 * DAY_S * 1000)
    case.service.sweep()
    assert case.consumers() == {}


@pytest.mark.parametrize("starts", [0, 1])
def test_a_query_that_died_before_its_first_batch_is_waited_for_and_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, starts: int
) -> None:
    """Spark may have logged the end of that batch: nobody but its checkpoint knows."""
    case = Case(tmp_path, consumer_timeout_s=2 * DAY_S)
    case.end(0, consumer="new")
    case.service.disconnected(case.peer)
    for _ in range(starts):
        case.start_again()
    case.clock.advance(599 * 1000)
    case.service.sweep()
    assert not caplog.messages
    for _ in range(3):
        case.clock.advance(DAY_S * 1000 // 2)
        case.service.sweep()
        case.release()
    assert case.consumers() == {"new": 0}
    assert len(case.list(0, 5, consumer="new").blocks) == 5
    (told,) = caplog.messages
    assert "consumer new of stream clicks has begun at place 0" in told
    assert "dropConsumer" in told


def test_a_query_that_never_came_back_after_its_start_is_forgotten_as_every_other(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, consumer_timeout_s=2 * DAY_S)
    case.end(0, consumer="new")
    case.service.disconnected(case.peer)
    case.clock.advance(2 * DAY_S * 1000 + 1)
    case.service.sweep()
    assert case.consumers() == {}


def test_a_host_that_is_started_again_and_again_forgets_who_never_came_back(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, consumer_timeout_s=7 * DAY_S)
    case.commit(2, consumer="gone")
    case.service.disconnected(case.peer)
    for _ in range(3):
        case.clock.advance(2 * DAY_S * 1000)
        case.start_again()
        case.commit(3, consumer="sleeps")
        case.service.disconnected(case.peer)
        case.service.sweep()
        assert case.consumers() == {"gone": 2, "sleeps": 3}
    case.clock.advance(2 * DAY_S * 1000)
    case.service.sweep()
    assert case.consumers() == {"sleeps": 3}


def test_who_is_connected_and_idle_is_seen_also_by_the_next_host(tmp_path: Path) -> None:
    case = Case(tmp_path, consumer_timeout_s=7 * DAY_S)
    case.commit(5)
    case.clock.advance(8 * DAY_S * 1000)
    case.service.sweep()
    case.start_again()
    case.clock.advance(2 * DAY_S * 1000)
    case.service.sweep()
    assert case.consumers() == {"c": 5}


def test_who_looks_now_and_then_and_finds_nothing_is_not_forgotten(tmp_path: Path) -> None:
    case = Case(tmp_path, consumer_timeout_s=7 * DAY_S)
    case.commit(5)
    for _ in range(8):
        case.service.disconnected(case.peer)
        case.service.sweep()
        case.clock.advance(2 * DAY_S * 1000)
        case.service.sweep()
        assert case.consumers() == {"c": 5}
        case.end(5)


def test_a_host_that_slept_too_long_waits_a_day_for_its_consumers(tmp_path: Path) -> None:
    case = Case(tmp_path, consumer_timeout_s=7 * DAY_S)
    case.commit(2)
    case.clock.advance(30 * DAY_S * 1000)
    case.start_again()
    case.clock.advance(DAY_S * 1000 - 1000)
    case.service.sweep()
    assert case.consumers() == {"c": 2}
    case.clock.advance(1000)
    case.service.sweep()
    assert case.consumers() == {}


def test_the_columns_are_known_after_the_last_block_went(case: Case) -> None:
    case.commit(5)
    case.ledger.places.release(case.service.retentions())
    for _ in range(2):
        found = case.ask(FindStream("clicks"))
        assert (found.first, found.kind) == (5, "binary")
        case.start_again()


def test_a_consumer_that_is_part_of_the_program_is_held_from_its_start_and_never_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(tmp_path, consumer_timeout_s=2 * DAY_S)
    case.service.attach("own", [0])
    case.commit(5, consumer="quick")
    assert case.service.read_before(0) == 0
    for _ in range(3):
        case.clock.advance(DAY_S * 1000)
        case.service.sweep()
        case.release()
    assert case.consumers() == {"own": 0, "quick": 5}
    assert len(case.list(0, 5).blocks) == 5
    assert not caplog.messages
    # It has been seen, so that the next host does not forget it before it begins.
    case.start_again()
    case.clock.advance(DAY_S * 1000 + 1)
    case.service.sweep()
    assert case.consumers()["own"] == 0
    # And when it is no part of the program any more it is as every other.
    case.clock.advance(2 * DAY_S * 1000)
    case.service.sweep()
    assert "own" not in case.consumers()


def test_without_a_timeout_who_sleeps_is_waited_for(case: Case) -> None:
    case.commit(2)
    case.service.disconnected(case.peer)
    case.clock.advance(1000 * DAY_S * 1000)
    case.service.sweep()
    assert case.consumers() == {"c": 2}
