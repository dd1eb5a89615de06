"""Rounds, quotients, verdicts and the page that a run writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import _added, _difference
from benchmarks.cases import CASES, SUBJECTS, Case, Check
from benchmarks.headline import headline
from benchmarks.page import also_rows, main_rows, markdown, marks, replace_section
from benchmarks.results import Figures
from benchmarks.rounds import Results, subjects_of


def figures(records_per_s: float) -> Figures:
    return {
        "records_per_s": records_per_s,
        "mb_per_s": records_per_s / 1e4,
        "cpu_s_per_million": 1.0,
        "peak_memory_mib": 100.0,
        "batch_delay_s": 0.1,
    }


COUNT = next(case for case in CASES if case.name == "count")


def test_every_case_names_subjects_that_are_there() -> None:
    for case in CASES:
        assert {case.ours, *case.also} <= SUBJECTS.keys()
        assert case.beside is None or case.beside in SUBJECTS
        assert case.checks


def test_a_pair_is_run_next_to_each_other_and_each_subject_once() -> None:
    names = [subject.name for subject in subjects_of(CASES)]
    assert len(names) == len(set(names))
    assert abs(names.index("words") - names.index("peer-words")) == 1


def test_the_ratio_is_the_median_of_the_rounds_ratios() -> None:
    ours = {0: figures(8.0), 1: figures(90.0), 2: figures(20.0)}
    theirs = {0: figures(1.0), 1: figures(10.0), 2: figures(10.0)}
    results = Results({"count": ours, "peer-count": theirs})
    assert results.value(COUNT, COUNT.checks[0]) == 8
    assert main_rows([COUNT], results)[0][-3:] == ("8.00x (2 to 9)", "≥ 8x", "yes")


def test_a_round_in_which_one_side_failed_makes_no_ratio() -> None:
    results = Results({"count": {0: figures(8.0), 1: figures(9.0)}, "peer-count": {1: figures(3)}})
    assert results.comparisons(COUNT, COUNT.checks[0]) == [3]


def test_how_much_more_it_is_is_a_difference() -> None:
    results = Results({"count": {0: figures(8.0)}, "peer-count": {0: figures(7.5)}})
    assert results.comparisons(COUNT, Check("records_per_s", more_at_most=1)) == [0.5]


def test_a_side_that_failed_is_shown_as_failed() -> None:
    rows = main_rows([COUNT], Results({"count": {0: figures(8.0)}}))
    assert rows[0][-1] == "failed"
    assert rows[1][2] == "failed"


@pytest.mark.parametrize(
    ("check", "value", "reached"),
    [
        (Check("x", times_at_least=8), 7.99, False),
        (Check("x", times_at_most=0.5), 0.5, True),
        (Check("x", more_at_most=1), 1.01, False),
        (Check("x", at_least=0.6), 0.6, True),
        (Check("x", at_most=60), 60.1, False),
        (Check("x"), 1.0, True),
    ],
)
def test_bounds(check: Check, value: float, reached: bool) -> None:
    assert check.is_reached(value) is reached


def test_what_stands_alone_has_its_own_table() -> None:
    case = Case(
        "c", "a title", "limiter", checks=(Check("ns", at_most=60, title="ns"),), main=False
    )
    results = Results({"limiter": {0: {"ns": 40.0}, 1: {"ns": 70.0}, 2: {"ns": 50.0}}})
    assert also_rows([case], results) == [("a title", "ns", "50 (40 to 70)", "≤ 60", "yes")]


def test_what_an_earlier_run_found_is_added_to_and_its_machine_must_be_the_same() -> None:
    earlier = {
        "machine": {"date": "yesterday", "CPU": "one", "commit": "a"},
        "how": "3 rounds",
        "figures": {"count": {"0": figures(1.0)}, "peer-count": {"0": figures(2.0)}},
        "notes": {"segment-log": {"best": 1}},
        "failures": [],
    }
    now = Results({"count": {0: figures(3.0), 1: figures(4.0)}})
    added = _added(earlier, now)
    assert added.by_round("count", "records_per_s") == [3.0, 4.0]
    assert added.by_round("peer-count", "records_per_s") == [2.0]
    assert added.notes == {"segment-log": {"best": 1}}
    same = {"date": "today", "CPU": "one", "commit": "a", "how": "3 rounds"}
    assert not _difference(earlier, same)
    assert _difference(earlier, {**same, "CPU": "two"}) == "its CPU is one, and not two"


def test_the_page_keeps_what_people_wrote() -> None:
    begin, end = marks("results")
    page = f"# Title\n\n{begin}\nold\n{end}\n\nThe end.\n"
    section = markdown([COUNT], Results(), {"CPU": "one"}, {}, "chart.png")
    replaced = replace_section(page, "results", section)
    assert replaced.startswith(f"# Title\n\n{begin}\n")
    assert replaced.endswith(f"{end}\n\nThe end.\n")
    assert "old" not in replaced
    assert "![" in replaced
    assert replace_section(replaced, "results", section) == replaced
    with pytest.raises(ValueError, match="no section"):
        replace_section("# Title\n", "results", section)


ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"


def test_the_headline_says_what_the_tables_say() -> None:
    page, results = PAGE.read_text(), (ROOT / "benchmarks" / "results.md").read_text()
    assert replace_section(page, "headline", headline(results)) == page


def test_the_headline_begins_with_plain_functions() -> None:
    begin, end = marks("headline")
    rows = PAGE.read_text().split(begin)[1].split(end)[0].strip().splitlines()[2:]
    assert rows[0].startswith("| Word count in plain Python functions |")


def test_a_headline_leaves_out_what_was_not_run_and_tells_what_fell_short() -> None:
    results = Results(
        {
            "count": {0: {**figures(7.0), "keeps_up": 0.0, "batch_delay_growth_s": 1.0}},
            "peer-count": {0: figures(1.0)},
        }
    )
    section = markdown([COUNT], results, {"CPU": "one"}, {}, None)
    _heads, _line, row, _empty, late, *_, short = headline(section).strip().splitlines()
    assert row.endswith(r"| 7 lines/s\* | 1 lines/s (pyspark.streaming) | 7.00x |")
    assert late.startswith(r"\* Its batches did not keep up")
    assert short == "- socket text, `rdd.count()`: 7.00x, to reach ≥ 8x"


def test_a_headline_of_several_rounds_says_what_they_were_between() -> None:
    results = Results(
        {
            "count": {0: figures(700.0), 1: figures(900.0), 2: figures(800.0)},
            "peer-count": {0: figures(70.0), 1: figures(90.0), 2: figures(100.0)},
        }
    )
    section = markdown([COUNT], results, {"CPU": "one"}, {}, None)
    row = headline(section).splitlines()[2]
    assert "| 800 lines/s (700 to 900) | 90 lines/s (70 to 100) (pyspark.streaming) | 10.0" in row
    assert row.endswith("x (8 to 10) |")
