"""One streaming program with its feeder: started, watched, measured, and removed."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.accounting import Accounting
from benchmarks.batches import Batch, growth, keeps_up, quantile, steady_part
from benchmarks.child import Child
from benchmarks.feeder import FeederOptions
from benchmarks.programs._program import ProgramOptions
from benchmarks.results import Figures

__all__ = ["StreamingRun", "Window", "run_streaming", "shared_memory"]

_START_BOUND_S = 90.0
_FIRST_BATCH_BOUND_S = 90.0
_MIB = 1 << 20


@dataclass(frozen=True)
class Window:
    """When is measured, in seconds: first the warm-up is left out."""

    warm_up_s: float = 12.0
    seconds: float = 20.0


@dataclass(frozen=True)
class StreamingRun:
    """What is run.

    Attributes:
        program: Module of the program.
        options: What it is told; port and folder are filled in.
        feeder: What feeds it; None if it makes its records itself.
        memory_only: Only memory is of interest; the batches may be too few to say more.
        least_warm_up_s: The warm-up takes at least so long, whatever the window says.
    """

    program: str
    options: ProgramOptions
    feeder: FeederOptions | None = field(default_factory=FeederOptions)
    memory_only: bool = False
    least_warm_up_s: float = 0.0


class _Progress:
    """What the program and the feeder have told so far."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.port = 0
        self.started = False
        self.batches: list[Batch] = []
        self.processed = 0
        self.sent: list[tuple[float, int]] = []
        self.on_processed: Callable[[int, float], None] = lambda _records, _seconds: None

    def hear_feeder(self, message: dict[str, Any]) -> None:
        if "port" in message:
            self.port = message["port"]
        else:
            with self.lock:
                self.sent.append((message["at"], message["sent"]))

    def hear_program(self, message: dict[str, Any]) -> None:
        if "started" in message:
            self.started = True
        if "batch" not in message:
            return
        batch = Batch(
            message["batch"],
            message["records"],
            message["begun"],
            message["ended"],
            message["delay_s"],
            tuple(message["latencies_ms"]),
        )
        with self.lock:
            self.batches.append(batch)
            self.processed += batch.records
        self.on_processed(self.processed, batch.ended - batch.begun)

    def waiting_at(self, moment: float) -> int:
        """Return the records that were sent and not processed at a moment."""
        with self.lock:
            sent = max((count for at, count in self.sent if at <= moment), default=0)
            done = sum(batch.records for batch in self.batches if batch.ended <= moment)
        return sent - done


def run_streaming(
    run: StreamingRun, window: Window, parent_folder: str, show: Callable[[str], None]
) -> Figures:
    """Run a program for the window and return its figures.

    Args:
        run: What is run.
        window: When is measured.
        parent_folder: Where the run's own folder is made, for logs and checkpoints.
        show: Told now and then how far it is.

    Raises:
        ChildFailedError: The program failed.
        TooFewBatchesError: It did not do enough to be measured.
    """
    folder = tempfile.mkdtemp(prefix="penstock-benchmark-", dir=parent_folder)
    memory_folder = tempfile.mkdtemp(prefix="penstock-benchmark-", dir=shared_memory())
    progress = _Progress()
    feeder: Child | None = None
    program: Child | None = None
    accounting: Accounting | None = None
    try:
        settings = (*run.options.settings, ("spark.penstock.memory.dir", memory_folder))
        options = replace(run.options, folder=folder, settings=settings)
        if run.feeder is not None:
            feeder = Child("benchmarks.feeder", run.feeder.as_dict(), progress.hear_feeder)
            progress.on_processed = _teller(feeder)
            feeder.wait("port of the feeder", lambda: progress.port > 0, 20)
            options = replace(options, port=progress.port)
        environment = {"TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        program = Child(run.program, options.as_dict(), progress.hear_program, environment)
        accounting = Accounting(program.mark)
        program.wait("start", lambda: progress.started, _START_BOUND_S)
        program.wait("batch with records", lambda: progress.processed > 0, _FIRST_BATCH_BOUND_S)
        begin = time.monotonic() + max(window.warm_up_s, run.least_warm_up_s)
        end = begin + window.seconds
        shown = 0.0
        while time.monotonic() < end:
            if program.has_ended:
                program.wait("end of the window", lambda: False, 1)
            if time.monotonic() > shown + 0.5:
                shown = time.monotonic()
                show(_state(progress, shown, begin, end))
            time.sleep(0.05)
        return _figures(run, progress, accounting, begin, end)
    finally:
        if accounting is not None:
            accounting.stop()
        for child in (program, feeder):
            if child is not None:
                child.end()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(memory_folder, ignore_errors=True)


def _teller(feeder: Child) -> Callable[[int, float], None]:
    return lambda processed, seconds: feeder.tell({"processed": processed, "seconds": seconds})


def shared_memory() -> str | None:
    """Return the folder that lies in memory, or None for the usual one of temporary files."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _state(progress: _Progress, now: float, begin: float, end: float) -> str:
    with progress.lock:
        batches = progress.batches[-4:]
    rate = 0.0
    if len(batches) > 1:
        rate = sum(batch.records for batch in batches[1:]) / (batches[-1].ended - batches[0].ended)
    phase = f"warming up, {begin - now:.0f} s" if now < begin else f"{end - now:.0f} s left"
    return f"{rate:,.0f} records/s, batch delay {batches[-1].delay_s:.1f} s, {phase}"


def _figures(
    run: StreamingRun, progress: _Progress, accounting: Accounting, begin: float, end: float
) -> Figures:
    if run.memory_only:
        return _memory(run, progress, accounting, end)
    with progress.lock:
        batches = list(progress.batches)
    steady = steady_part(batches, begin, end)
    millions = steady.records / 1e6
    delays = [batch.delay_s for batch in steady.batches]
    figures: Figures = {
        "records_per_s": steady.records_per_s,
        "mb_per_s": steady.records_per_s * run.options.record_bytes / 1e6,
        "cpu_s_per_million": accounting.cpu_s(steady.begin, steady.end) / millions,
        "peak_memory_mib": accounting.peak_memory_bytes(steady.begin, steady.end) / _MIB,
        "peak_worker_mib": accounting.peak_worker_bytes(steady.begin, steady.end) / _MIB,
        "batches": len(steady.batches),
        "batch_delay_s": quantile(delays, 0.5),
        "batch_delay_growth_s": growth(delays),
    }
    grown = 0
    if run.feeder is not None:
        grown = progress.waiting_at(steady.end) - progress.waiting_at(steady.begin)
        figures["backlog_growth"] = grown / steady.records
    grown_s = grown / steady.records_per_s
    figures["keeps_up"] = float(keeps_up(delays, grown_s, run.options.batch_s, steady.seconds))
    latencies = [latency for batch in steady.batches for latency in batch.latencies_ms]
    if latencies:
        figures["p50_ms"] = quantile(latencies, 0.5)
        figures["p99_ms"] = quantile(latencies, 0.99)
        figures["max_ms"] = max(latencies)
    return figures


def _memory(run: StreamingRun, progress: _Progress, accounting: Accounting, end: float) -> Figures:
    return {
        "peak_worker_mib": accounting.peak_worker_bytes(0, end) / _MIB,
        "peak_memory_mib": accounting.peak_memory_bytes(0, end) / _MIB,
        "unprocessed_mib": progress.waiting_at(end) * run.options.record_bytes / _MIB,
    }
