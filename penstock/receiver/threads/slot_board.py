"""`Board`: what a slot process shows its keeper, and `Silence`: how the keeper sees that it hangs.

C code that keeps Python's lock stops all threads of a process, also the one that looks after its
receivers. So a process shows here each look of that, whose turn on the event loop it is, and which
receiver a thread runs for before it does. A process that did not look while its keeper did so
`_SILENT_LOOKS` times is to be ended, and the thread that ran meanwhile is to blame.
"""

from __future__ import annotations

import mmap
import os

from penstock.runtime.processes import stat_of

_SILENT_LOOKS = 10

_LOOKS, _ON_LOOP, _THREADS = range(3)
_SHOWN = 4096
"""Two threads whose numbers differ by a multiple of this are not shown beside one another."""


class Board:
    """Numbers that a process shows its keeper, which reads them also when nothing runs in it."""

    def __init__(self) -> None:
        # Streams stand there plus one, and 0 for none.
        self._cells = memoryview(mmap.mmap(-1, 8 * (_THREADS + 2 * _SHOWN))).cast("q")
        self.on_loop = self._cells[_ON_LOOP:_THREADS]

    @property
    def looks(self) -> int:
        """How often the process has looked."""
        return self._cells[_LOOKS]

    def show_look(self) -> None:
        """Show that the process looks."""
        self._cells[_LOOKS] += 1

    def show_thread(self, thread: int, stream_id: int | None) -> None:
        """Show which receiver a thread, by its system's number, runs for; None: it is the loop."""
        at = _THREADS + 2 * (thread % _SHOWN)
        self._cells[at] = thread
        self._cells[at + 1] = 0 if stream_id is None else stream_id + 1

    def runs_for(self, thread: int) -> int | None:
        """Return the stream for which a thread runs, if one is known."""
        at = _THREADS + 2 * (thread % _SHOWN)
        stands = self._cells[at + 1] or self.on_loop[0] if self._cells[at] == thread else 0
        return stands - 1 if stands else None


class Silence:
    """Whether a process looks, as its keeper sees it.

    Args:
        pid: The process.
        board: What it shows.
    """

    def __init__(self, pid: int, board: Board) -> None:
        self._pid = pid
        self._board = board
        self._looks = 0
        self._silent = 0
        self._ran: dict[int, int] = {}

    def look(self) -> tuple[int | None, str] | None:
        """Return which stream lets nothing else run, if known, and why it is said; None: none.

        Called about once a second. One that was stopped is not silent.
        """
        looks = self._board.looks
        try:
            if looks != self._looks or not looks or stat_of(f"/proc/{self._pid}")[0] in "Tt":
                self._looks, self._silent = looks, 0
                return None
            if not self._silent:
                self._ran = self._run_of_threads()
            self._silent += 1
            if self._silent <= _SILENT_LOOKS:
                return None
            ran = {
                thread: run - self._ran.get(thread, 0)
                for thread, run in self._run_of_threads().items()
            }
        except OSError:
            return None  # It has ended.
        busiest = max(ran, key=ran.__getitem__)
        whose = self._board.runs_for(busiest) if ran[busiest] else None
        return whose, f"let nothing else run for {self._silent} s"

    def _run_of_threads(self) -> dict[int, int]:
        """Return the CPU of each thread, in the system's ticks."""
        folder = f"/proc/{self._pid}/task"
        fields = {int(name): stat_of(f"{folder}/{name}") for name in os.listdir(folder)}
        return {thread: int(found[11]) + int(found[12]) for thread, found in fields.items()}
