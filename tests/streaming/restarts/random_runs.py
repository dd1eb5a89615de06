"""Random programs with random lives: what they are, how one is drawn, run, judged and shrunk.

    python -m tests.streaming.restarts.random_runs 10000         that many, from seed 0 on
    python -m tests.streaming.restarts.random_runs 100 --from 7  a hundred, from seed 7 on
    python -m tests.streaming.restarts.random_runs --seed 123    one, shrunk and told

A failing program is told as a `Plan` that can be pasted into a test: ``judge(Plan(...)) == []``.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from penstock.streaming import StreamingContext
from tests.streaming.restarts.driven import Driven, World
from tests.streaming.restarts.model import Model, Step, build, number_of, slide_of

__all__ = ["Plan", "draw", "judge", "shrink"]

Event = tuple[Any, ...]


@dataclass(frozen=True)
class Plan:
    """A program and what happens to it.

    Attributes:
        outputs: What it writes, each to a sink of its number.
        events: What happens: a name and numbers each; see `_Life`.
        seed: Chooses what happens first where several things may.
        batch_ms: The batch interval. Where none is given, states are saved every 10 s or in every
            batch, whichever is longer.
        jobs: How many jobs may run at a time; each may then overtake as many.
    """

    outputs: tuple[Step, ...]
    events: tuple[Event, ...]
    seed: int = 0
    batch_ms: int = 1000
    jobs: int = 1

    def __str__(self) -> str:
        lines = ["Plan(", "    outputs=("]
        lines += [f"        {output!r}," for output in self.outputs]
        lines += ["    ),", "    events=("]
        lines += [f"        {event!r}," for event in self.events]
        numbers = [f"    {name}={getattr(self, name)}," for name in ("seed", "batch_ms", "jobs")]
        return "\n".join([*lines, "    ),", *numbers, ")"])


# -- drawing -----------------------------------------------------------------------------------


def draw(seed: int) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(seed)
    outputs = tuple(_step(chance) for _ in range(chance.choice((1, 1, 2, 3))))
    events: list[Event] = []
    has_files = any("files" in _inputs_of(output) for output in outputs)
    for _ in range(chance.randint(4, 16)):
        events.extend(_episode(chance, has_files, len(outputs)))
    batch_ms = chance.choice((1000, 1000, 1000, 200, 10_000))
    return Plan(outputs, tuple(events), seed, batch_ms, jobs=chance.choice((1, 1, 1, 2, 3)))


_STEPS = (
    *("map", "filter", "reduce", "transform", "cache", "save", "union", "join", "quiet"),
    *("window", "window", "sums", "inverse", "inverse", "state", "state", "mapped", "snapshots"),
)
"""The more often what remembers."""


def _step(chance: random.Random) -> Step:
    step: Step = (chance.choice(("left", "left", "left", "right", "files")),)
    for _ in range(chance.randint(1, 4)):
        name = chance.choice(_STEPS)
        slide = slide_of(step)
        every = chance.choice((0, 1, 1, 2, 3, 5)) * slide
        if name in ("window", "sums", "inverse"):
            # From five slides on, the inverse function is used.
            own = slide * chance.choice((1, 1, 1, 2))
            window = slide * chance.choice((1, 2, 3, 5, 6, 9))
            if name == "inverse":
                step = (name, step, window, own, every // slide * own)
            else:
                step = (name, step, window, own)
        elif name == "save":
            step = (name, step, every or slide)
        elif name == "state":
            step = (name, step, every)
        elif name in ("mapped", "snapshots"):
            step = (name, step, every, chance.choice((0, 0, 2, 4)))
        elif name in ("union", "join"):
            other: Step = (chance.choice(("left", "right")),)
            if slide == 1:
                step = (name, step, other)
        else:
            step = (name, step)
    return step


def _inputs_of(step: Step) -> set[str]:
    if len(step) == 1:
        return {step[0]}
    return {name for part in step[1:] if isinstance(part, tuple) for name in _inputs_of(part)}


def _episode(chance: random.Random, has_files: bool, outputs: int) -> Iterator[Event]:
    """Yield a few events that belong together."""
    kind = chance.choices(
        ("calm", "crash", "crash within", "stop", "down", "lost", "pause", "clock"),
        (30, 12, 18, 8, 14, 6, 4, 4),
    )[0]
    if kind == "calm":
        yield from _batches(chance, chance.randint(1, 8), has_files)
    elif kind == "crash":
        yield from _batches(chance, chance.randint(0, 2), has_files)
        yield ("crash",)
        yield ("advance", chance.choice((0, 0, 0, 1, 3, 12)))
        yield ("start",)
    elif kind == "crash within":
        yield ("crash at", int(chance.expovariate(1 / 40)) + 1)
        yield from _batches(chance, chance.randint(1, 6), has_files)
        yield ("start",)
    elif kind == "stop":
        yield ("stop", chance.random() < 0.8)
        yield ("advance", chance.choice((0, 0, 1, 4)))
        yield ("start",)
    elif kind == "down":
        yield ("down", chance.randrange(outputs + 1), chance.random() < 0.3)
        yield from _batches(chance, int(chance.expovariate(1 / 8)) + 1, has_files)
        if chance.random() < 0.5:
            yield ("crash",)
            yield ("start",)
        yield ("up",)
    elif kind == "lost":
        yield ("lose cached",)
    elif kind == "pause":
        yield ("pause", chance.randint(1, 15))
        yield from _batches(chance, 1, has_files)
    elif kind == "clock":
        # Set back, it would make new files older than those that a stream leaves out.
        back = () if has_files else (-3_600_000, -20_000, -5_000, -700)
        yield ("clock", chance.choice((*back, 700, 5_000, 20_000)))
        yield from _batches(chance, 2, has_files)


def _batches(chance: random.Random, count: int, has_files: bool) -> Iterator[Event]:
    for _ in range(count):
        for number in (0, 1):
            if chance.random() < 0.6:
                yield ("receive", number, *(_pair(chance) for _ in range(chance.randint(1, 3))))
        if has_files and chance.random() < 0.4:
            yield ("file", *(_pair(chance) for _ in range(chance.randint(1, 2))))
        yield ("advance", 1)


def _pair(chance: random.Random) -> tuple[str, int]:
    return chance.choice("abc"), chance.randint(1, 9)


# -- running -----------------------------------------------------------------------------------


def _record_of(line: str) -> tuple[str, str, int]:
    number, key, value = line.split()
    return number, key, int(value)


class _Build:
    def __init__(self, plan: Plan) -> None:
        self._outputs = plan.outputs
        self._batch_s = plan.batch_ms / 1000

    def __call__(self, ssc: StreamingContext, world: World) -> None:
        inputs = {"left": world.stream(ssc), "right": world.stream(ssc)}
        if any("files" in _inputs_of(output) for output in self._outputs):
            inputs["files"] = ssc.textFileStream(world.files).map(_record_of)
        for name, stream in inputs.items():
            world.keep(stream, name)
        known: dict[Step, Any] = {}
        for number, output in enumerate(self._outputs):
            world.keep(build(output, inputs, self._batch_s, known), str(number))


class _Life:
    """The events of a plan, each a method of its name."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed)
        self.program = Driven(
            _Build(plan),
            batch_s=plan.batch_ms / 1000,
            conf={"spark.streaming.concurrentJobs": str(plan.jobs)},
            chance=self.chance,
        )
        self.lines: set[str] = set()
        self._number = 0

    def run(self) -> list[str]:
        """Live the plan; return what was wrong."""
        with self.program:
            self._live()
            return list(_judged(self))

    def _live(self) -> None:
        self.start()
        # A file of the moment in which its stream is made counts as an old one.
        self.program.advance(100)
        for name, *numbers in self.plan.events:
            getattr(self, name.replace(" ", "_"))(*numbers)
        self.end()

    def start(self) -> None:
        while not self.program.is_running:
            self.program.start()

    def end(self) -> None:
        self.up()
        if self.program.is_running:
            self.program.world.revive()
        self.start()
        # Ahead of a clock that was set back there is a batch every two intervals, and the first one
        # after a crash may be one whose blocks were allocated before it.
        for _ in range(4):
            self.advance(1)

    def receive(self, stream_id: int, *pairs: tuple[str, int]) -> None:
        if self.program.is_running:
            self.program.receive([(self._name(), *pair) for pair in pairs], stream_id)

    def file(self, *pairs: tuple[str, int]) -> None:
        records = [(self._name(), *pair) for pair in pairs]
        self.lines.update(name for name, _, _ in records)
        self.program.put_file(records[0][0], [" ".join(map(str, record)) for record in records])

    def _name(self) -> str:
        self._number += 1
        return str(self._number)

    def advance(self, batches: int) -> None:
        for _ in range(batches):
            self.program.advance(self.plan.batch_ms)

    def pause(self, batches: int) -> None:
        self.program.advance(self.plan.batch_ms * batches)

    def clock(self, by_ms: int) -> None:
        self.program.set_wall_time(self.program.world.clock.wall_ms + by_ms)

    def crash(self) -> None:
        self.program.crash()

    def crash_at(self, count: int) -> None:
        if self.program.is_running:
            self.program.crash_at(count)

    def stop(self, graceful: bool) -> None:
        if self.program.is_running:
            self.program.stop(graceful=graceful)

    def down(self, sink: int, runs_jobs: bool) -> None:
        names = map(str, range(len(self.plan.outputs)))
        chosen = names if sink >= len(self.plan.outputs) else (str(sink),)
        self.program.world.down = dict.fromkeys(chosen, runs_jobs)

    def up(self) -> None:
        self.program.world.down = {}

    def lose_cached(self) -> None:
        if self.program.sc is not None:
            self.program.sc.lose_cached()


# -- judging -----------------------------------------------------------------------------------


def judge(plan: Plan) -> list[str]:
    """Run a plan; return what was wrong with it."""
    logger = logging.getLogger("penstock")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        return _Life(plan).run()
    finally:
        logger.setLevel(level)


def _judged(life: _Life) -> Iterator[str]:
    world = life.program.world

    def number(time_ms: int) -> int:
        return number_of(time_ms, world.batch_ms)

    told = world.errors
    if told:
        yield f"told: {len(told)} times, first {told[0]!r}"
    was_set_back = any(event[0] == "clock" and event[1] < 0 for event in life.plan.events)
    if world.early and not was_set_back:
        yield f"batches {sorted(map(number, world.early))} came before their time"
    inputs: dict[str, dict[int, list[Any]]] = {"left": {}, "right": {}, "files": {}}
    for name, batches in inputs.items():
        for time_ms, given in world.results.get(name, {}).items():
            batches[number(time_ms)] = given[0]
            if any(again != given[0] for again in given):
                yield f"{name} gave batch {number(time_ms)} different records: {given}"
    yield from _incomplete(life, inputs)
    model = Model(inputs)
    last = max(max(batches, default=0) for batches in inputs.values())
    for place, output in enumerate(life.plan.outputs):
        sink = str(place)
        results = {number(ms): given for ms, given in world.results.get(sink, {}).items()}
        failed = {number(ms) for ms in world.failed.get(sink, ())}
        for batch in range(1, last + 1):
            expected = model.expected(output, batch)
            for given in results.get(batch, ()):
                if given != (expected or []):
                    yield f"output {sink}, batch {batch}: {given} instead of {expected}"
            left_out = batch not in results and batch not in failed
            if expected and left_out:
                yield f"output {sink}, batch {batch}: nothing instead of {expected}"


def _incomplete(life: _Life, inputs: dict[str, dict[int, list[Any]]]) -> Iterator[str]:
    world = life.program.world
    wanted = {"left": set[str](), "right": set[str](), "files": set(life.lines)}
    for block in world.acknowledged:
        stream = "left" if block.startswith("input-0-") else "right"
        wanted[stream].update(record[0] for record in world.blocks[block])
    if not any("files" in _inputs_of(output) for output in life.plan.outputs):
        wanted["files"] = set()
    for name, batches in inputs.items():
        found = [record[0] for records in batches.values() for record in records]
        if len(found) != len(set(found)):
            yield f"{name}: records are in several batches"
        if wanted[name] - set(found):
            yield f"{name}: records {sorted(wanted[name] - set(found))} are in no batch"


# -- shrinking ---------------------------------------------------------------------------------


def shrink(plan: Plan, seconds: float = 20) -> Plan:
    """Return a smaller plan that fails, too."""
    end_s = time.monotonic() + seconds
    size = max(len(plan.events) // 2, 1)
    while size and time.monotonic() < end_s:
        smaller = next((p for p in _without(plan, size) if _fails(p)), None)
        if smaller is None:
            size //= 2
        else:
            plan = smaller
    for output in plan.outputs:
        rest = tuple(other for other in plan.outputs if other is not output)
        if rest and _fails(replace(plan, outputs=rest)):
            plan = replace(plan, outputs=rest)
    return plan


def _without(plan: Plan, size: int) -> Iterator[Plan]:
    for at in range(0, len(plan.events), size):
        yield replace(plan, events=plan.events[:at] + plan.events[at + size :])


def _fails(plan: Plan) -> bool:
    try:
        return bool(judge(plan))
    except Exception:  # noqa: BLE001  # whatever a broken program raises
        return True


# -- by hand -----------------------------------------------------------------------------------


def problems_of(seed: int) -> list[str]:
    """Return what is wrong with the plan of a seed."""
    try:
        return judge(draw(seed))
    except Exception as error:  # noqa: BLE001  # it counts as wrong
        return [f"raised {type(error).__name__}: {error}"]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=1000, help="how many programs")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one, shrunk")
    asked = parser.parse_args(arguments)
    if asked.seed is not None:
        plan = draw(asked.seed)
        if not _fails(plan):
            print(f"seed {asked.seed}: nothing is wrong")
            return 0
        plan = shrink(plan)
        print(plan, *judge(plan), sep="\n")
        return 1
    begin_s = time.process_time()
    failed = []
    for seed in range(asked.first, asked.first + asked.count):
        problems = problems_of(seed)
        if problems:
            failed.append(seed)
            print(f"seed {seed}: {problems[0]}", flush=True)
    took_s = time.process_time() - begin_s
    print(f"{asked.count} programs in {took_s:.0f} s of CPU, {len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
