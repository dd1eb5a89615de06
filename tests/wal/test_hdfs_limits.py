"""What is done when DataNodes do not take writes; no HDFS is needed for it."""

from __future__ import annotations

from penstock.wal._hdfs.limits import NewFiles, WriteLimit


def test_a_limit_grows_until_slow_disks_keep_it() -> None:
    limit = WriteLimit()
    first_s = limit.now_s
    for took_s in (3 * first_s, 3 * first_s, 3 * first_s):
        if took_s > limit.now_s:
            limit.passed(limit.now_s)
        else:
            limit.kept(took_s)
    assert limit.now_s == 4 * first_s
    for _ in range(20):
        limit.passed(limit.now_s)
    assert limit.now_s == 60.0


def test_writes_that_wait_for_the_same_node_count_once() -> None:
    limit = WriteLimit()
    used_s = limit.now_s
    for _ in range(5):
        limit.passed(used_s)
    assert limit.now_s == 2 * used_s


def test_quick_writes_bring_the_first_limit_back() -> None:
    limit = WriteLimit()
    first_s = limit.now_s
    for _ in range(3):
        limit.passed(limit.now_s)
    for _ in range(3):
        limit.kept(0.01)
    assert limit.now_s == first_s
    limit.kept(0.01)
    assert limit.now_s == first_s


def test_copies_are_left_out_after_two_failures_for_a_while() -> None:
    now_s = [100.0]
    files = NewFiles(lambda: now_s[0])
    assert files.copies_left_out == 0
    found = []
    for _ in range(4):
        files.failed()
        found.append(files.copies_left_out)
    assert found == [0, 1, 1, 2]
    # Then one is tried with all; if that fails, the next is not.
    now_s[0] += 61
    assert files.copies_left_out == 0
    files.failed()
    assert files.copies_left_out == 2
    files.began()
    assert files.copies_left_out == 0
    files.failed()
    assert files.copies_left_out == 0
    files.failed()
    assert files.copies_left_out == 1
