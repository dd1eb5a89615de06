"""The table beside the chart of rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.programs.rate_steps import PHASE_S, speed
from benchmarks.rate_chart import part_of, section, write_section


def batches(records: Any, waited_s: float = 0.0) -> list[dict[str, Any]]:
    return [
        {"at_s": float(at), "records": records(at), "waited_s": waited_s, "took_s": 0.9}
        for at in range(1, int(5 * PHASE_S) + 1)
    ]


def test_near_is_when_three_batches_together_are() -> None:
    part = part_of(batches(lambda at: 20_000 if at > 7 else 1000), 0.0, PHASE_S)
    assert (part.near_s, part.used, part.delay_s) == (8.0, 1.0, 0.9)
    assert part_of(batches(lambda at: 18_000), 0.0, PHASE_S).near_s is None
    assert part_of(batches(lambda at: 20_000, waited_s=2.0), 0.0, PHASE_S).near_s is None


def test_the_section_stands_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "rates.md"
    page.write_text("a\n<!-- rate chart: begin -->\nstale\n<!-- rate chart: end -->\nb\n")
    write_section(str(page), section({"pid": batches(speed), "aimd": batches(speed)}))
    text = page.read_text()
    assert text.startswith("a\n<!-- rate chart: begin -->\n| batches")
    assert text.endswith("<!-- rate chart: end -->\nb\n")
    assert text.count("| `aimd` |") == 5
    assert "stale" not in text
