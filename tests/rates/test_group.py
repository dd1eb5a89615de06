"""One total for many receivers: never above it, and used when anybody has data."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.rates.division import share_out
from penstock.streaming import RateSource, StreamGraphError
from penstock.wire.messages import ReportRateStatus
from tests.rates.plant import Book, Group

TOTAL = 300_000.0

demands = st.dictionaries(
    st.integers(0, 20), st.one_of(st.floats(0, 1e6), st.just(math.inf)), min_size=1
)


@given(st.floats(1, 1e6), demands)
def test_max_min_fairness(total: float, wanted: dict[int, float]) -> None:
    shares = share_out(total, wanted)
    assert shares.keys() == wanted.keys()
    assert sum(shares.values()) == pytest.approx(total)
    short = [stream for stream in wanted if shares[stream] < wanted[stream] * (1 - 1e-9)]
    # Who gets less than it wants gets no less than anybody else.
    for stream in short:
        assert shares[stream] >= max(shares.values()) * (1 - 1e-9)


def test_unequal_sources_use_the_total() -> None:
    speeds = [0, 100, 1_000, 10_000, 20_000, 40_000, 1e7, 1e7]
    group = Group(TOTAL, speeds)
    group.run(5)
    used = group.run(20)
    assert 0.98 * TOTAL <= used <= TOTAL
    # The slow ones are not held back, and the fast ones have the rest in equal parts.
    rates = group.group.rate.shares
    assert all(rates[stream] >= speeds[stream] for stream in range(6))
    assert rates[6] == pytest.approx(rates[7], rel=0.01)
    assert sum(rates.values()) <= TOTAL * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.one_of(st.just(0.0), st.floats(1, 1e6)), min_size=1, max_size=8),
    st.sampled_from([10, 50, 200]),
    st.data(),
)
def test_whatever_the_sources_do_the_shares_in_force_stay_within_the_total(
    speeds: list[float], delay_ms: int, data: st.DataObject
) -> None:
    group = Group(TOTAL, [*speeds, 1e7], delay_ms)
    for _ in range(3):
        group.run(6)
        used = group.run(6)
        assert used >= 0.98 * min(TOTAL, sum(gate.speed for gate in group.gates))
        assert used <= TOTAL * 1.02
        changed = data.draw(st.integers(0, len(speeds) - 1))
        group.gates[changed].speed = data.draw(st.sampled_from([0.0, 1e4, 1e7]))


def test_a_total_of_bytes_is_divided_by_the_bytes_that_pass() -> None:
    speeds = [0, 10_000, 1e7, 1e7]
    group = Group(TOTAL, [float(speed) for speed in speeds], in_bytes=True)
    group.run(5)
    assert 0.98 * TOTAL <= group.run(10) <= TOTAL
    found = group.group.rate
    assert found.shares[1] >= 10_000
    assert found.used[1] == pytest.approx(10_000, rel=0.02)
    assert found.shares[2] == pytest.approx(found.shares[3], rel=0.01)
    rate = group.made.book.rates()[2]
    assert (rate.effective, rate.byte_source) == (None, RateSource.GROUP)
    assert rate.effective_bytes == found.shares[2]
    # Another limit of bytes of a member leaves the rest to the other.
    group.made.book.set_byte_rate(2, 1000)
    group.run(3)
    assert group.group.rate.shares[3] > 0.9 * TOTAL


def test_a_source_that_wakes_up_gets_its_part_soon() -> None:
    group = Group(TOTAL, [1e7, 0])
    group.run(5)
    assert group.group.rate.shares[1] < 0.01 * TOTAL
    group.gates[1].speed = 1e7
    group.run(2)
    assert group.group.rate.shares[1] == pytest.approx(TOTAL / 2, rel=0.02)


def test_a_receiver_that_is_gone_leaves_its_share_and_gets_it_back() -> None:
    group = Group(TOTAL, [1e7, 1e7])
    group.run(3)
    group.stop(1)
    group.run(4)
    assert group.group.rate.shares[0] > 0.98 * TOTAL
    group.restart(1)
    group.run(2)
    assert group.group.rate.shares[1] == pytest.approx(TOTAL / 2, rel=0.02)


def test_a_receiver_that_never_starts_holds_nothing() -> None:
    group = Group(TOTAL, [1e7, 1e7])
    group.gates[1].is_running = False
    group.made.book.receiver_stopped(1)
    group.run(4)
    assert group.group.rate.shares[0] > 0.98 * TOTAL


def test_the_total_can_be_changed_while_it_is_used() -> None:
    group = Group(TOTAL, [1e7, 1e7, 50])
    group.run(3)
    group.group.set_rate("600000/second")
    group.total = 600_000
    group.run(3)
    assert group.run(5) >= 0.98 * 600_000
    group.group.set_rate(1000.0)
    shares = group.group.rate.shares
    assert sum(shares.values()) <= 1000 * (1 + 1e-9)


def test_a_group_that_is_made_while_receivers_run_is_divided_like_any_other() -> None:
    made = Book(2)
    made.start()
    for stream in (0, 1):
        made.book.receiver_started(stream)
    group = made.book.make_group(1000, [0, 1])
    assert made.sent[2:] == [(0, 500.0, None), (1, 500.0, None)]

    def report(stream: int, version: int, at_s: float, waiting: bool) -> None:
        made.clock.advance(500)
        made.book.on_rate_status(ReportRateStatus(stream, "a", version, 0, 0.0, waiting, 0.0, at_s))

    for at_s in (1.0, 2.0):
        report(0, 2, at_s, True)
        report(1, 2, at_s, False)
    # What the idle one loses is not given away before it has confirmed.
    assert group.rate.shares[1] < 10
    assert group.rate.shares[0] == 500
    report(1, 3, 3.0, False)
    assert group.rate.shares[0] > 990
    assert made.sent[-1][0] == 0


def test_another_limit_of_a_member_leaves_the_rest_to_the_others() -> None:
    group = Group(TOTAL, [1e7, 1e7])
    group.made.book.set_rate(0, 20_000)
    group.run(3)
    assert group.run(5) >= 0.98 * TOTAL
    assert group.group.rate.used[0] == pytest.approx(20_000, rel=0.02)


def test_what_is_paused_leaves_its_part_to_the_others_and_gets_it_back() -> None:
    group = Group(TOTAL, [1e7, 1e7, 1e7])
    group.run(3)
    group.made.book.set_paused(2, True)
    group.run(3)
    others = group.gates[:2]
    begun = sum(gate.passed for gate in others)
    group.run(5)
    assert sum(gate.passed for gate in others) - begun >= 0.98 * TOTAL * 5
    group.made.book.set_paused(2, False)
    group.run(3)
    assert group.group.rate.shares[2] == pytest.approx(TOTAL / 3, rel=0.02)


@pytest.mark.parametrize("in_bytes", [False, True])
def test_who_waits_for_a_limit_of_another_kind_leaves_the_rest_to_the_others(
    in_bytes: bool,
) -> None:
    group = Group(TOTAL, [1e7, 1e7, 1e7], in_bytes=in_bytes)
    group.gates[2].other = 5000
    group.run(8)
    assert group.run(5) >= 0.98 * TOTAL


def test_a_group_survives_the_driver() -> None:
    made = Book(2)
    made.book.make_group("1000/second", [0, 1])
    made.start()
    made.after_recovery()
    made.start()
    assert made.sent == [(0, 500.0, None), (1, 500.0, None)]
    assert made.memories[0].group is made.memories[1].group


def test_what_makes_no_group_is_refused() -> None:
    book = Book(2).book
    with pytest.raises(ValueError, match="at least one stream"):
        book.make_group(1, [])
    with pytest.raises(ValueError, match="above 0"):
        book.make_group(0, [0])
    with pytest.raises(StreamGraphError, match="stream 5 has no receiver"):
        book.make_group(1, [0, 5])
    book.make_group(1, [0])
    with pytest.raises(StreamGraphError, match="stream 0 belongs to another group"):
        book.make_group(1, [1, 0])


def test_a_group_follows_its_streams_to_other_numbers() -> None:
    made = Book(2)
    group = made.book.make_group(300, [0, 1])
    made.memories = {5: made.memories[0], 6: made.memories[1]}
    made.book.renumber({0: 5, 1: 6})
    assert group.rate.shares == {5: 150, 6: 150}


def test_a_group_is_never_without_a_total() -> None:
    group = Book(2).book.make_group(300, [0, 1])
    none: Any = None
    with pytest.raises(ValueError, match="a group needs a total rate"):
        group.set_rate(none)
    assert group.rate.total == 300
