"""The page of costs has the table that the generator makes, with the prices that it names."""

from __future__ import annotations

from pathlib import Path

from benchmarks.object_costs import PRICES, PRICES_OF, gets_s, puts_s, table

PAGE = (Path(__file__).parents[2] / "docs" / "costs.md").read_text()


def test_the_page_has_the_table_and_its_prices() -> None:
    assert f"\n\n{table()}\n\n" in PAGE
    assert f"--prices {','.join(map(str, PRICES))}\n" in PAGE
    write, read, stored = PRICES
    assert f"${write} for 1,000 requests that write" in PAGE
    assert f"${read} for 1,000 that read and ${stored} for a GB and month\n({PRICES_OF};" in PAGE


def test_requests_grow_with_processes_and_with_what_fills_an_object() -> None:
    # As they were counted: one a block interval, one for the ledger, four for a batch.
    assert puts_s(1, 1, 5, 1) == 1 + 1 + 0.8
    assert puts_s(10, 1, 5, 1) == 10 + 10 + 0.8
    assert puts_s(1, 1, 5, 10) == 2 + 1 + 0.8
    assert gets_s(1, 1, 100) == 12


def test_other_prices_make_another_table() -> None:
    assert "| stored: a day | 86 | 864 | 8,640 |" in table((0, 0, 1.0))
