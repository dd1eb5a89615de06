"""Hurts running programs in every way that is known, and checks that their results are exact.

A program (`tests.system.chaos.program`) runs in mounts of its own: a small disk for checkpoints and
logs, a small memory for blocks. A cycle does one thing to it, or two at once, drawn from `faults`,
and is over when records that were acknowledged afterwards are in a batch. Some faults end the
driver, which is started again on its folder, and may be killed again while it recovers. After so
many cycles the program stops gracefully. Then

- each number of the stream with positions is in exactly one batch, in order; so is each of a direct
  stream;
- the state after each batch is the sum of the batches up to it, the window that of its batches;
- each acknowledged number of the stream without positions is in a batch (what was not acknowledged
  may be there twice: the source sent it again);
- no process, memory file, lock or scratch folder is left; what a driver leaves ends within 90 s.

Programs run one after the other in each of some lanes, in modes: with a checkpoint folder on the
disk (most of them), without one (then nothing survives the driver, and only its receivers,
executors and block servers are hurt), with one on an HDFS whose nodes are hurt too, with a broker
of Kafka that is hurt too, whose records come by a receiver and by a direct stream, and with one on
an object store that is hurt too, and so are requests on their way: there hosts are lost with all
that they have. Receivers run in processes of their own or share one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.services.hdfs import POM as HDFS_POM
from tests.services.jars import jars
from tests.services.jvm import hasten
from tests.services.kafka import POM as KAFKA_POM
from tests.system.chaos.run import MODES, Piece
from tests.system.leftovers import MARK
from tests.system.mounts import in_own_mounts

SHARES = {"folder": 0.6, "no folder": 0.1, "hdfs": 0.1, "kafka": 0.1, "s3": 0.1}

_MOUNTS = (
    "mount -t tmpfs -o size=600m tmpfs {0}/ram && { {"
    " truncate -s 512m {0}/ram/image && mkfs.ext4 -q {0}/ram/image &&"
    " mount -o loop {0}/ram/image {0}/disk; }"
    " || mount -t tmpfs -o size=512m tmpfs {0}/disk; } &&"
    " mount -t tmpfs -o size=256m tmpfs {0}/memory && mkdir {0}/disk/tmp"
)


class Campaign:
    """Programs in lanes.

    Args:
        pieces: The programs, in the order in which they are begun.
        lanes: How many run at a time.
    """

    def __init__(self, pieces: list[Piece], lanes: int) -> None:
        self.pieces = pieces
        self.lanes = lanes
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def run(self) -> list[dict[str, Any]]:
        """Run them all; return what each told."""
        with ThreadPoolExecutor(self.lanes) as pool:
            try:
                return [told for told in pool.map(self._run, self.pieces) if told is not None]
            except BaseException:
                with self._lock:
                    self._ended = True
                    for each in self._running:
                        each.terminate()
                raise

    def _run(self, piece: Piece) -> dict[str, Any] | None:
        if piece.until_s is not None and time.time() >= piece.until_s:
            return None
        folder = Path(piece.folder)
        for name in ("ram", "disk", "memory", "tmp"):
            (folder / name).mkdir(parents=True)
        mounts = _MOUNTS.replace("{0}", str(folder))
        command = [
            *in_own_mounts(f"{{ {mounts}; }}"),
            *("-m", "tests.system.chaos.run", json.dumps(asdict(piece))),
        ]
        # Without a checkpoint folder the logs are among the temporary files.
        temporary = folder / ("disk/tmp" if piece.mode == "no folder" else "tmp")
        environment = {**os.environ, "TMPDIR": str(temporary), "SPARK_LOCAL_IP": "127.0.0.1"}
        hasten(environment)
        environment.pop(MARK, None)
        with self._lock:
            if self._ended:
                return {"failed": "not begun", **asdict(piece)}
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self._running.add(process)
        last = ""
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                last = line
                print(f"[{piece.mode} {piece.seed}] {line}", end="", flush=True)
        with self._lock:
            self._running.discard(process)
        told: dict[str, Any] = {**asdict(piece), "failed": f"it ended, after it said: {last}"}
        with suppress(OSError):
            told = json.loads((folder / "told.json").read_text())
        if "failed" in told:
            print(f"[{piece.mode} {piece.seed}] FAILED: {told['failed']}", flush=True)
        else:
            subprocess.run(["rm", "-rf", str(folder)], check=True)
            print(f"[{piece.mode} {piece.seed}] exact, nothing left: {told}", flush=True)
        return told


def plan(options: argparse.Namespace, modes: list[str], folder: Path) -> list[Piece]:
    """Return programs of at most `size` cycles that share out all cycles, the modes mixed."""
    cycles, seed, size, master = options.cycles, options.seed, options.size, options.master
    until_s = time.time() + 60 * options.minutes if options.minutes else None
    whole = sum(SHARES[mode] for mode in modes)
    left = {mode: round(cycles * SHARES[mode] / whole) for mode in modes}
    left[modes[0]] += cycles - sum(left.values())
    found: list[tuple[float, str, int]] = []
    for mode, count in left.items():
        pieces = -(-count // size)
        for number in range(pieces):
            part = count * (number + 1) // pieces - count * number // pieces
            found.append(((number + 0.5) / pieces, mode, part))
    # JVMs for executors cost as much as all else: two of three programs do without.
    masters = [master] if master else ["local[4]", "local-cluster[2,2,1024]", "local[4]"]
    turns = {mode: itertools.cycle(masters) for mode in modes}
    return [
        Piece(
            mode,
            seed + number,
            part,
            next(turns[mode]),
            f"{folder}/{mode.replace(' ', '-')}-{seed + number}",
            until_s,
        )
        for number, (_, mode, part) in enumerate(sorted(found))
    ]


def summary(told: list[dict[str, Any]], took_s: float) -> str:
    """Return what is to be said of all programs."""
    faults: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    cycles: Counter[str] = Counter()
    exact = [each for each in told if "failed" not in each]
    for each in exact:
        faults.update(each["faults"])
        cycles[f"{each['mode']} in {each['master'].partition('[')[0]}"] += each["cycles"]
        sums.update({name: each[name] for name in each if type(each[name]) is int})
    seeds = [each["seed"] for each in told]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = [
        f"{cycles.total()} cycles in {len(exact)} programs, {sums['drivers']} drivers: exact",
        "nothing acknowledged lost, nothing with positions doubled, nothing left",
        "cycles: " + ", ".join(f"{mode} {count}" for mode, count in cycles.items()),
        "faults: " + ", ".join(f"{name} {count}" for name, count in faults.most_common()),
        ", ".join(
            f"{name}: {sums[name]}"
            for name in (
                "records",
                "records without positions",
                "records of a direct stream",
                "batches",
                "states",
                "windows",
            )
        ),
        f"doubled without positions: {sums['doubled without positions']}",
        f"seeds {min(seeds)} to {max(seeds)}, commit {commit or 'unknown'}",
        f"{took_s / 60:.1f} min, {os.cpu_count()} cores, {memory_gib:.0f} GiB",
        f"Python {platform.python_version()}, {platform.system()} {platform.release()}",
    ]
    for each in told:
        if "failed" in each:
            errors = re.findall(r"^\w*(?:Error|Exception)\b.*", each["failed"], re.MULTILINE)
            error = (errors or [each["failed"]])[-1][:300]
            place = f"{each['mode']}, seed {each['seed']}, {each['folder']}"
            lines.append(f"FAILED, and not counted: {place}: {error}")
    return "\n".join(lines)


def _exit(*_: object) -> None:
    sys.exit(1)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--lanes", type=int, default=2, help="how many programs run at a time")
    parser.add_argument("--minutes", type=float, help="after so many no other cycle begins")
    parser.add_argument("--size", type=int, default=50, help="the most cycles of a program")
    parser.add_argument(
        "--mode", action="append", choices=MODES, help="again and again; default: all"
    )
    parser.add_argument(
        "--master", help="default: local[4] for two of three, else local-cluster[2,2,1024]"
    )
    parser.add_argument("--folder", type=Path, help="holds what failed; default: a temporary one")
    options = parser.parse_args()
    modes = options.mode or list(MODES)
    for mode, pom in (("hdfs", HDFS_POM), ("kafka", KAFKA_POM)):
        if mode in modes:
            jars(pom)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    pieces = plan(options, modes, folder)
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, _exit)
    print(f"seed {options.seed}", flush=True)
    began_s = time.monotonic()
    told = Campaign(pieces, options.lanes).run()
    print(summary(told, time.monotonic() - began_s), flush=True)
    if any("failed" in each for each in told):
        return 1
    folder.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
