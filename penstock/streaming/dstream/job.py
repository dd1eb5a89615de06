"""A job is one output operation of one batch; a job set is all of a batch."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.listeners.events import UNKNOWN, BatchInfo, OutputOperationInfo, Time
from penstock.listeners.input_info import BatchInput


@dataclass(frozen=True)
class Job:
    """One output operation of one batch.

    Attributes:
        time_ms: The batch.
        output_op_id: The operation, counted from 0 in the order of the program.
        name: What it is and where in the program, for people.
        description: The stack of the call in the program.
        run: Runs it; raises what the user's function raises.
    """

    time_ms: int
    output_op_id: int
    name: str
    description: str
    run: Callable[[], None]


@dataclass
class JobResult:
    """How a job went; times in milliseconds since the epoch, None when not yet."""

    job: Job
    start_ms: int | None = None
    end_ms: int | None = None
    error: BaseException | None = None

    @property
    def failure_reason(self) -> str | None:
        """The error with its traceback as text, or None."""
        if self.error is None:
            return None
        return "".join(traceback.format_exception(self.error))

    def info(self) -> OutputOperationInfo:
        """What listeners get of it now."""
        return OutputOperationInfo(
            Time(self.job.time_ms),
            self.job.output_op_id,
            self.job.name,
            self.job.description,
            _known(self.start_ms),
            _known(self.end_ms),
            self.failure_reason,
        )


@dataclass
class JobSet:
    """The jobs of one batch and how far they are. The scheduler's lock guards it."""

    time_ms: int
    jobs: tuple[Job, ...]
    input_info: Mapping[int, BatchInput]
    submission_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    results: dict[int, JobResult] = field(init=False)

    def __post_init__(self) -> None:
        self.results = {job.output_op_id: JobResult(job) for job in self.jobs}

    @property
    def is_complete(self) -> bool:
        """Whether every job has ended, well or not."""
        return all(result.end_ms is not None for result in self.results.values())

    def info(self) -> BatchInfo:
        """What listeners get of it now."""
        return BatchInfo(
            Time(self.time_ms),
            self.input_info,
            _known(self.submission_ms),
            _known(self.start_ms),
            _known(self.end_ms),
            {number: result.info() for number, result in self.results.items()},
        )


def _known(time_ms: int | None) -> int:
    return UNKNOWN if time_ms is None else time_ms
