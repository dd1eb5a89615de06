"""What the program wrote, checked batch by batch while it runs, and as a whole at the end."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from tests.system.chaos.program import WINDOW_S
from tests.system.recoverable import word_of

NAMES = ("batches", "states", "windows", "plain")


class Results:
    """The results of one program, each in a file of its batch's time.

    Args:
        folder: Holds a folder for each of `NAMES`; they are made.
        states: Whether there are states and windows.

    Attributes:
        paths: These folders.
        processed: The numbers below it are in exactly one batch each, in order.
        plain_end: The largest number of the stream without positions in a batch, and one.
    """

    def __init__(self, folder: Path, states: bool) -> None:
        self.paths = {name: folder / name for name in NAMES}
        for path in self.paths.values():
            path.mkdir()
        self.states = states
        self.processed = 0
        self.plain_end = 0
        self._batches: dict[int, Any] = {}
        self._plain: dict[int, list[list[int]]] = {}
        self._counts: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._totals: dict[int, tuple[Counter[str], Counter[str]]] = {}
        self.checked_states = 0
        self.checked_windows = 0

    @property
    def batches(self) -> int:
        """How many batches were checked."""
        return len(self._batches)

    def look(self) -> None:
        """Read what is new, and check it against what went before.

        Raises:
            AssertionError: It is not exact.
        """
        for time_ms in self._new("plain", self._plain):
            runs = self._read("plain", time_ms)["runs"]
            self._plain[time_ms] = runs
            self.plain_end = max([self.plain_end, *(end for _, end in runs)])
        # States first: the state of a batch is written after its result.
        for time_ms in self._new("batches", self._batches):
            newest = max(self._batches, default=0)
            assert time_ms > newest, f"batch {time_ms} came after batch {newest}"
            self._take(time_ms, self._read("batches", time_ms))

    def check(self, sent: int, plain_sent: int, *, plain_once: bool) -> int:
        """Check all results against what was sent.

        Args:
            sent: How many numbers were sent with positions.
            plain_sent: How many without.
            plain_once: Whether those may not come twice either.

        Returns:
            How many numbers came twice.

        Raises:
            AssertionError: They are not exact.
        """
        self.look()
        others = [str(path) for each in self.paths.values() for path in each.glob("*.other")]
        assert others == [], f"batches that ran again had other results: {others}"
        assert self.processed == sent, f"{self.processed} of {sent} numbers were processed"
        if self.states:
            self._check_states()
            self._check_windows()
        doubles = self._check_plain(plain_sent)
        assert not (plain_once and doubles), f"{doubles} numbers of the direct stream came twice"
        return doubles

    def _new(self, name: str, known: dict[int, Any]) -> list[int]:
        times = {int(each) for each in os.listdir(self.paths[name]) if each.isdigit()}
        return sorted(times - known.keys())

    def _read(self, name: str, time_ms: int) -> Any:
        return json.loads((self.paths[name] / str(time_ms)).read_text())

    def _take(self, time_ms: int, found: Any) -> None:
        """Check that a batch has the numbers that come next, by each word's count and sum."""
        end = self.processed + sum(found["counts"].values())
        counts: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        for number in range(self.processed, end):
            counts[word_of(number)] += 1
            sums[word_of(number)] += number
        span = f"batch {time_ms} has not the numbers {self.processed} to {end}"
        assert counts == found["counts"], f"{span}: {counts} expected, {found}"
        assert sums == Counter(found["sums"]), f"{span}: sums {sums} expected, {found}"
        self.processed = end
        self._counts += counts
        self._sums += sums
        self._batches[time_ms] = found["counts"]
        self._totals[time_ms] = (self._counts.copy(), self._sums.copy())

    def _check_states(self) -> None:
        states = set(self._new("states", {}))
        assert states == set(self._batches), (
            f"batches without a state: {sorted(set(self._batches) - states)}, "
            f"states without a batch: {sorted(states - set(self._batches))}"
        )
        for time_ms, (counts, sums) in self._totals.items():
            state = self._read("states", time_ms)
            assert Counter(state["counts"]) == counts, (time_ms, state, counts)
            assert Counter(state["sums"]) == sums, (time_ms, state, sums)
        self.checked_states = len(states)

    def _check_windows(self) -> None:
        windows = self._new("windows", {})
        for time_ms in windows:
            expected: Counter[str] = Counter()
            for other, counts in self._batches.items():
                if time_ms - WINDOW_S * 1000 < other <= time_ms:
                    expected.update(counts)
            found = self._read("windows", time_ms)["counts"]
            assert found == expected, (time_ms, found, expected)
        self.checked_windows = len(windows)

    def _check_plain(self, sent: int) -> int:
        doubles = reached = 0
        for first, end in sorted(tuple(run) for runs in self._plain.values() for run in runs):
            assert first <= reached, (
                f"acknowledged numbers from {reached} to {first} are in no batch"
            )
            doubles += min(end, reached) - first
            reached = max(reached, end)
        assert reached >= sent, f"acknowledged numbers from {reached} to {sent} are in no batch"
        return doubles
