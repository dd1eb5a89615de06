"""`run_receiver`: what an executor is given, and how an attempt begins and ends there."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import StorageLevel

from penstock.errors import PenstockError
from penstock.receiver import BlockLogs, ExitKind, ReceiverFailedError, ReceiverLaunch
from penstock.receiver.attempts.task import executor_id, host_name, start_block_server
from penstock.wire import ApplicationLink
from penstock.wire.messages import (
    DeregisterReceiver,
    FindReplicaHost,
    Refused,
    RegisterBlockServer,
    RegisterReceiver,
    ReplicaHostAt,
    ReportError,
    StopBlockServer,
    StopReceiver,
)
from tests.blockstore.test_replicas import OtherHost
from tests.receiver.conftest import SETTINGS
from tests.receiver.running import WAIT_S, Running, Shared, Tracker
from tests.receiver.test_life_cycle import Feeding, Quiet
from tests.system.leftovers import await_that

Run = Callable[..., Running]


def explode() -> None:
    raise ModuleNotFoundError("No module named 'only_on_the_driver'")


class CannotBeUnpickled:
    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return explode, ()


class CannotBeMade:
    def __init__(self) -> None:
        raise ValueError("no such topic")

    def run(self) -> None: ...


@pytest.mark.parametrize(
    ("receiver", "says"),
    [
        (pickle.dumps(CannotBeUnpickled()), "No module named 'only_on_the_driver'"),
        (CannotBeMade, "no such topic"),
        (pickle.dumps("text"), "str is not a Receiver"),
        (b"garbage", "could not be made in the executor"),
    ],
)
def test_a_receiver_that_cannot_be_made_is_told_once_and_not_retried(
    run: Run, tracker: Tracker, receiver: object, says: str
) -> None:
    """The original launches it again, for ever, and says nothing."""
    assert run(receiver).join() is None, "a task that fails would be tried again"
    tracker.wait_for_count(ReportError, 1)
    (report,) = tracker.of(ReportError)
    assert report.permanent
    assert says in report.message
    assert "Traceback" in report.error
    assert tracker.of(RegisterReceiver) == []


def test_a_bad_setting_is_permanent_too(run: Run, tracker: Tracker, shared: Shared) -> None:
    """In the original ``blockInterval=abc`` relaunches the receiver for ever, without an event."""
    from penstock.errors import SettingError

    class BadSetting(Quiet):
        def onStart(self) -> None:
            raise SettingError("spark.my.topic", "", "the name of a topic")

    assert run(BadSetting(shared)).join() is None
    reports = [report for report in tracker.of(ReportError) if report.permanent]
    assert "spark.my.topic" in reports[0].message


def test_an_unwritable_log_folder_reaches_the_driver(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    error = run(Quiet(shared), logs=BlockLogs(str(tmp_path / "file"), "none")).join()
    assert isinstance(error, ReceiverFailedError)
    tracker.wait_for_count(DeregisterReceiver, 1)
    assert "file" in tracker.of(DeregisterReceiver)[0].error


def test_the_launch_hides_what_nobody_should_see(tracker: Tracker) -> None:
    launch = ReceiverLaunch(
        stream_id=1,
        attempt="a" * 32,
        receiver=b"the pickled receiver",
        link=ApplicationLink(tracker.secret, tracker.address),
        settings=SETTINGS,
        logs=BlockLogs("/x", "none", application_id="app"),
        storage_level=ReceiverLaunch.storage_level_tuple(StorageLevel.DISK_ONLY),
    )
    assert repr(tracker.secret) not in repr(launch)
    assert "pickled" not in repr(launch)
    assert pickle.loads(pickle.dumps(launch)) == launch


def test_a_receiver_has_its_blocks_copied_to_the_host_that_the_driver_names(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    other = OtherHost(tmp_path / "other", secret=tracker.secret)
    named = [other.answer(), ReplicaHostAt(None, None, False, False)]
    tracker.answer = lambda message: (
        named[bool(message.silent) or not other.is_up]
        if isinstance(message, FindReplicaHost)
        else None
    )
    level = ReceiverLaunch.storage_level_tuple(StorageLevel.MEMORY_AND_DISK_2)
    running = run(Quiet(shared), storage_level=level, has_copies=True)
    shared.wait_for("onStart")
    shared.receiver.store(["first"])
    (asked,) = tracker.of(FindReplicaHost)
    assert asked == FindReplicaHost(3, running.launch.attempt, asked.host)
    assert tracker.blocks[0].replicas[0].host == "other"
    assert tracker.of(ReportError) == []
    # The host is lost, and there is no other one: that is told, and the stream goes on.
    other.stop()
    shared.receiver.store(["second"])
    assert tracker.blocks[1].replicas == ()
    tracker.wait_for_count(ReportError, 1)
    (report,) = tracker.of(ReportError)
    assert report.message == "Blocks have no copy on another host"
    assert not report.permanent
    assert tracker.records() == ["first", "second"]


def test_storage_levels_say_which_copies_exist(run: Run, tracker: Tracker, shared: Shared) -> None:
    for level, memory, disk in (
        (StorageLevel.MEMORY_ONLY, True, False),
        (StorageLevel.DISK_ONLY, False, True),
        (StorageLevel.MEMORY_AND_DISK_2, True, True),
    ):
        tracker.blocks.clear()
        running = run(Quiet(shared), storage_level=ReceiverLaunch.storage_level_tuple(level))
        shared.wait_for("onStart", len(shared.events) + 1 - shared.events.count("onStop"))
        shared.receiver.store(["x"])
        (block,) = tracker.blocks
        assert (block.memory is not None, block.segment is not None) == (memory, disk)
        tracker.send(StopReceiver())
        running.join()


def test_an_attempt_ends_when_its_driver_is_gone_for_long(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(
        Quiet(shared), settings=replace(SETTINGS, block_server_lease_s=0.3, ask_timeout_s=0.5)
    )
    shared.wait_for("onStart")
    tracker.server.stop()
    tracker.peer = None
    error = running.join()
    assert isinstance(error, ReceiverFailedError)
    assert error.kind is ExitKind.LOST
    assert shared.events == ["onStart", "onStop"]


@pytest.mark.long
@pytest.mark.slow
def test_an_attempt_whose_queue_is_full_ends_when_its_driver_is_gone_for_long(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    """Or its task would live on for Spark, and no other attempt would ever be started."""

    class Steady(Feeding):
        def feed(self, number: int) -> None:
            while not self.shared.go.wait(0.001) and not self.isStopped():
                self.store("x")

    placed = replace(
        SETTINGS,
        block_server_lease_s=2.0,
        ask_timeout_s=0.5,
        block_queue_size=1,
        memory_bytes=64 << 20,
    )
    running = run(Steady(shared), settings=placed)
    tracker.wait_for_records(1)
    tracker.server.stop()
    tracker.peer = None
    error = running.join()
    assert isinstance(error, ReceiverFailedError)
    assert error.kind is ExitKind.LOST
    assert shared.events == ["onStart", "onStop"]


@pytest.mark.slow
def test_a_block_server_that_could_not_be_started_is_tried_again(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    tries: list[int] = []

    def ensure(launch: ReceiverLaunch) -> None:
        tries.append(len(tries))
        if len(tries) < 3:
            raise PenstockError("it was killed while it was starting")
        shared.say("block server")

    running = run(Quiet(shared), ensure_block_server=ensure)
    shared.wait_for("block server")
    tracker.wait_for_count(ReportError, 2)
    assert "it was killed" in tracker.of(ReportError)[0].message
    tracker.send(StopReceiver())
    assert running.join() is None
    assert tries == [0, 1, 2]


def test_after_a_reconnect_the_receiver_registers_again(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    assert tracker.peer is not None
    tracker.peer.close()
    tracker.wait_for_count(RegisterReceiver, 2)
    first, second = tracker.of(RegisterReceiver)
    assert first == second
    shared.receiver.store(["after the reconnect"])
    assert tracker.records() == ["after the reconnect"]
    tracker.send(StopReceiver())
    assert running.join() is None
    assert shared.events == ["onStart", "onStop"]


def test_an_attempt_that_was_replaced_while_it_was_cut_off_ends(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    tracker.answer = lambda message: (
        Refused("a newer attempt is registered") if isinstance(message, RegisterReceiver) else None
    )
    assert tracker.peer is not None
    tracker.peer.close()
    assert running.join() is None
    assert shared.events == ["onStart", "onStop"]


def test_no_thread_of_ours_is_left_behind(run: Run, tracker: Tracker, shared: Shared) -> None:
    import threading

    before = set(threading.enumerate())
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.restart("once")
    shared.wait_for("onStart", 2)
    tracker.send(StopReceiver())
    running.join()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    # Others may begin one meanwhile that is none of ours.
    assert not {name for name in left if name.startswith("penstock-")}


def launch_of_module(module: str, name: str, tracker: Tracker, folder: Path) -> Path:
    """Pickle a launch of a receiver whose module only the folder has; return the file."""
    receiver = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import {module},pickle,sys;sys.stdout.buffer.write(pickle.dumps({module}.{name}()))",
        ],
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{os.getcwd()}"},
        capture_output=True,
        check=True,
        timeout=WAIT_S,
    ).stdout
    launch = ReceiverLaunch(
        stream_id=3,
        attempt="b" * 32,
        receiver=receiver,
        link=ApplicationLink(tracker.secret, tracker.address),
        settings=replace(SETTINGS, memory_dir=str(folder)),
        logs=BlockLogs(str(folder), "none", application_id="app"),
        storage_level=ReceiverLaunch.storage_level_tuple(StorageLevel.MEMORY_AND_DISK),
    )
    (folder / "launch").write_bytes(pickle.dumps(launch))
    return folder / "launch"


@pytest.mark.slow
def test_the_process_does_not_outlive_its_executor(tracker: Tracker, tmp_path: Path) -> None:
    """A process between us and the receiver dies, as an executor's daemon does."""
    script = textwrap.dedent(
        """
        import os, pathlib, pickle, sys
        parent, child = os.getpid(), os.fork()
        if child:
            os.write(1, f"{child}\\n".encode())
            sys.stdin.read()
            os._exit(0)
        from penstock.receiver import run_receiver
        launch = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
        run_receiver(launch, ensure_block_server=lambda _: None)
        """
    )
    (tmp_path / "idle.py").write_text(
        "from penstock.receiver import Receiver\n"
        "class Idle(Receiver):\n"
        "    def onStart(self): pass\n"
        "    def onStop(self): pass\n"
    )
    launch = launch_of_module("idle", "Idle", tracker, tmp_path)
    executor = subprocess.Popen(
        [sys.executable, "-c", script, str(launch)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"},
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        tracker.wait_for_count(RegisterReceiver, 1)
    finally:
        executor.kill()
        executor.wait(WAIT_S)
    tracker.wait_for_count(DeregisterReceiver, 1)
    assert "executor of receiver 3 is gone" in tracker.of(DeregisterReceiver)[0].message


@pytest.mark.long
@pytest.mark.slow
def test_a_process_ends_though_its_receiver_keeps_the_interpreter_for_itself(
    tracker: Tracker, tmp_path: Path
) -> None:
    """As C code can; then no thread of ours runs any more."""
    (tmp_path / "stuck.py").write_text(
        "import ctypes, sys\n"
        "from penstock.receiver import Receiver\n"
        "from penstock.receiver.attempts import supervisor, task\n"
        "from penstock.receiver.attempts.attempt_state import Bounds\n"
        "task.LOOK_S, task._LAST_RESORT_S = 0.05, 0.5\n"
        "supervisor.Bounds = lambda **changed: Bounds(0.5, 0.5, 0.5, 0.1, 0.1)\n"
        "sys.setswitchinterval(0.0001)\n"
        "class Stuck(Receiver):\n"
        f"    def onStart(self): open({str(tmp_path / 'started')!r}, 'x').close()\n"
        "    def onStop(self):\n"
        "        self.isStopped()\n"
        "        import time; time.sleep(0.2)\n"
        "        ctypes.PyDLL(None).sleep(1000)\n"
    )
    launch = launch_of_module("stuck", "Stuck", tracker, tmp_path)
    script = (
        "import pathlib, pickle, sys, stuck\n"
        "from penstock.receiver import run_receiver\n"
        "launch = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "run_receiver(launch, ensure_block_server=lambda _: None)"
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            script,
            str(launch),
        ],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        tracker.wait_for_count(RegisterReceiver, 1)
        # One that is stopped before it has started has nothing that could hang.
        await_that("its start", (tmp_path / "started").exists, WAIT_S)
        tracker.send(StopReceiver())
        _, told = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.wait(WAIT_S)
    assert process.returncode == 1, told
    assert "Timeout" in told
    assert "in onStop" in told


def test_the_hosts_block_server_outlives_the_receiver(
    tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    running = Running(
        Quiet(shared),
        tracker,
        tmp_path,
        replace(SETTINGS, memory_dir=str(tmp_path)),
        ensure_block_server=start_block_server,
    )
    tracker.wait_for_count(RegisterBlockServer, 1)
    try:
        shared.wait_for("onStart")
        tracker.send(StopReceiver())
        assert running.join() is None
        (server,) = tracker.of(RegisterBlockServer)
        os.kill(server.pid, 0)  # it lives
    finally:
        assert tracker.block_server is not None
        tracker.block_server.send(StopBlockServer(remove_files=True))
        tracker.wait_for(lambda: tracker.block_server is None)


def test_the_executor_is_found_where_spark_tells_it() -> None:
    assert executor_id({}) == "driver"
    assert executor_id({"SPARK_EXECUTOR_ID": "7"}) == "7"
    address = "http://w:8081/logPage/?appId=app-1&executorId=12&logType=stdout"
    assert executor_id({"SPARK_LOG_URL_STDOUT": address}) == "12"
    assert executor_id({}, ("java", "--executor-id", "5", "--hostname", "w")) == "5"


def test_the_host_has_the_name_that_sparks_scheduler_knows() -> None:
    assert host_name("2", {"1": "a", "2": "b"}) == "b"
    assert host_name("unknown", {"1": "a", "2": "a"}) == "a"
    assert host_name("unknown", {"1": "a", "2": "b"})
    assert host_name("driver", {})


def test_an_executor_that_the_driver_did_not_know_yet_is_on_its_own_host() -> None:
    command = ("java", "--executor-id", "3", "--hostname", "b", "--cores", "2")
    assert host_name("3", {"1": "a"}, command) == "b"


def test_the_command_of_an_executor_is_found_above_its_workers() -> None:
    # A shell in place of the JVM; its child is the daemon, whose child is the worker.
    code = "from penstock.receiver.attempts.task import *; print(executor_id(), host_name('9', {}))"
    daemon = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], check=True)"
    done = subprocess.run(
        [
            *("sh", "-c", '"$0" -c "$1" -c "$2"; true', sys.executable, daemon, code),
            *("--executor-id", "9", "--hostname", "worker-9"),
        ],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["9", "worker-9"]
