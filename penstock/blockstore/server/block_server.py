"""The block server: a process of its own per host.

What must hold:

- It serves only what belongs to its application, only to peers that know the application's secret
  (I9).
- It outlives receivers and their workers, so that their blocks stay readable; its own death harms
  nothing but reads from other hosts, until another is started.
- It keeps copies of other hosts' blocks, in logs of its own, as durable as the receivers' logs, and
  copies blocks of its host to another one when the tracker asks for that.
- It deletes a block's bytes only when the tracker says so (I4), or when the application is over: a
  driver that is silent, paused or cut off, may come back and ask for what was acknowledged.
- It keeps its application's memory files from those that remove what killed applications left,
  and removes such files itself (`OrphanCollector`).
- It ends by itself: when the tracker asks it to, when the tracker has been gone for the lease and
  the driver is known to be dead, when it has been gone for hours, when the tracker refuses it, or
  when its lock file is gone. No process is left behind.

Its life: `ensure_block_server` starts it with the lock and hands it a `BlockServerLaunch` by a
pipe. It listens, connects to the tracker, registers, says ``ready`` in one line, and
then serves until it ends. When the application is over, its memory files go: they would hold the
host's memory for ever. Its log folders go if the tracker says so, or, when the driver is dead, if
the launch says so.

*Is the driver dead?* It is when its process was on this host and is gone. Of one on another host
nothing is known: refused connections, too, may come from what stands between. So the server waits
for it, serving and keeping all, for ``spark.penstock.blockServer.driverTimeout``.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
import functools
import logging
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import msgspec

from penstock.blockstore.server._copying import BlockCopier
from penstock.blockstore.server._files import ApplicationFiles
from penstock.blockstore.server._serving import BlockService, ServingLimits
from penstock.blockstore.server.launch import (
    BlockServerLaunch,
    BlockServerReady,
    holds_lock,
    lock_path,
    log_path,
    remove_orphans,
    remove_own_files,
)
from penstock.blockstore.server.replica_service import ReplicaLogs, ReplicaService
from penstock.errors import PenstockError
from penstock.runtime.clock import Clock, SystemClock
from penstock.wire import (
    AuthenticationError,
    Client,
    ConnectionLostError,
    WireError,
    WireOptions,
)
from penstock.wire.messages import (
    BlockServerRegistered,
    CheckLogs,
    CopyBlocks,
    LogsMissing,
    Message,
    RegisterBlockServer,
    ReleaseBlocks,
    StopBlockServer,
)

# Orphans: memory files that killed applications left; what keeps them, and when they go.
#
# A memory file is a cache, and holds memory of the host until somebody removes it. That is its
# application's block server; but the application may be killed as a whole before it has one. So the
# file's lock (``flock``, shared) says that somebody still needs it: its receiver has it from the
# beginning, and the block server takes it, too, so that the file stays when the receiver dies. The
# block server of any other application of the same user removes a file that no one has had locked
# for a while. It waits because an application may be just starting, or starting its block server
# again.
#
# Lock files and empty logs of killed block servers are removed by `launch`.

_MEMORY_FILE = re.compile(r"penstock-.+-[0-9a-f]{32}")


class OrphanCollector:
    """Locks an application's memory files, and removes orphans: files that no one has locked.

    For one thread.

    Args:
        application_id: Whose files are kept.
        memory_folder: The folder of the memory files, of all applications.
        patience_s: How long a file of another application must have been unlocked.
        clock: Monotonic time.
    """

    def __init__(
        self, application_id: str, memory_folder: str, patience_s: float, clock: Clock
    ) -> None:
        self._prefix = f"penstock-{application_id}-"
        self._folder = memory_folder
        self._patience_s = patience_s
        self._clock = clock
        self._kept: dict[str, int] = {}
        self._unlocked: dict[tuple[str, int], float] = {}

    def look(self) -> None:
        """Lock new files of the application; remove what was left by others. Call often."""
        self.let_go_of_removed()
        seen = set()
        for name in self._names():
            with contextlib.suppress(OSError), self._opened(name) as fd:
                if name.startswith(self._prefix):
                    self._keep(name, fd)
                else:
                    seen.add(self._look_at(name, fd))
        self._unlocked = {key: at_s for key, at_s in self._unlocked.items() if key in seen}

    def let_go_of_removed(self) -> None:
        """Close what was removed: until then it holds its memory."""
        for name, fd in list(self._kept.items()):
            if os.fstat(fd).st_nlink == 0:
                os.close(self._kept.pop(name))

    def close(self) -> None:
        """Keep no file any more."""
        while self._kept:
            os.close(self._kept.popitem()[1])

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._folder) if _MEMORY_FILE.fullmatch(name)]
        except OSError:
            return []

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        # Neither through a link nor held up by a named pipe, and with the rights to lock only.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(os.path.join(self._folder, name), flags)
        try:
            yield fd
        finally:
            os.close(fd)

    def _keep(self, name: str, fd: int) -> None:
        if name not in self._kept:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # The lock belongs to what was opened, so also to its copy.
            self._kept[name] = os.dup(fd)

    def _look_at(self, name: str, fd: int) -> tuple[str, int] | None:
        """Remove the file if it was unlocked for long enough; else return what it is known by."""
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        key = (name, found.st_ino)
        now_s = self._clock.monotonic_s()
        if now_s - self._unlocked.setdefault(key, now_s) < self._patience_s:
            return key
        path = os.path.join(self._folder, name)
        if os.path.samestat(os.lstat(path), found):
            os.unlink(path)
            _logger.info("%s was left by an application that was killed; it is removed", path)
        return None


_logger = logging.getLogger("penstock.blockstore")

_LOOK_S = 1.0
"""How often the server checks that its lock file still exists."""

_SLOW_DRIVER_S = 30.0
"""How much longer than the lease the first answer of the tracker may take."""


class ExitReason(enum.Enum):
    """Why a block server ends."""

    STOPPED = "the application ended and keeps its files"
    STOPPED_AND_REMOVED = "the application ended"
    DRIVER_DEAD = "the driver's process is gone, and the lease is over"
    DRIVER_SILENT = "the driver has been silent for so long that it counts as dead"
    REFUSED = "the tracker refused it"
    FOLDER_GONE = "its lock file is gone"
    SIGNAL = "it was told so by a signal"


_T = TypeVar("_T")


class BlockServer:
    """One block server. `run` is called once, on the event loop that everything here runs on.

    The tracker's messages arrive on the client's thread and are handed to the loop; what may
    block is done by one worker thread, in the order in which the tracker said so. Copying blocks
    may take long, and has another.

    Args:
        launch: What to serve, for whom.
        lock: The locked descriptor of the lock file.
    """

    def __init__(self, launch: BlockServerLaunch, lock: int) -> None:
        self._launch = launch
        self._lock = lock
        self._files = ApplicationFiles(
            launch.application_id, launch.memory_folder, launch.block_log_root
        )
        self._replicas = ReplicaLogs(self._files, launch.replica_log)
        self._orphans = OrphanCollector(
            launch.application_id, launch.memory_folder, launch.left_after_s, SystemClock()
        )
        self._exit_reason: asyncio.Future[ExitReason]
        self._loop: asyncio.AbstractEventLoop
        self._worker = ThreadPoolExecutor(1, "penstock-block-server-worker")
        self._copying = ThreadPoolExecutor(1, "penstock-block-server-copies")
        self._copier = BlockCopier(self._files, launch.link)
        self._client: Client | None = None
        self._lease_s = launch.lease_s

    async def run(self, ready: Callable[[BlockServerReady], None]) -> ExitReason:
        """Serve until the end.

        Args:
            ready: Called once, when the server is registered.

        Raises:
            PenstockError, OSError: It could not start.
        """
        self._loop = asyncio.get_running_loop()
        self._exit_reason = self._loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._end, ExitReason.SIGNAL)
        limits = ServingLimits()
        copies = ReplicaService(self._replicas, self._launch.block_max_bytes, limits.step_timeout_s)
        service = BlockService(
            self._launch.link.secret,
            self._files,
            limits,
            ssl_context=self._launch.link.server_context(),
            replicas=copies,
        )
        try:
            address = await service.start(
                self._launch.address_to_listen_at(),
                self._launch.listen_port,
                self._launch.port_retries,
            )
            hello = RegisterBlockServer(self._launch.host, address, os.getpid())
            self._client = client = self._make_client(hello)
            try:
                await self._register(client, hello)
                ready(BlockServerReady(os.getpid(), address))
                self._submit("remove orphans", functools.partial(remove_orphans, self._launch))
                reason = await self._await_end()
            finally:
                self._copier.close()
                await self._work(client.close)
                await self._work(self._copying.shutdown)
        finally:
            await service.stop()
            await self._work(copies.close)
            await self._work(self._replicas.close)
        await self._work(functools.partial(self._clean_up, reason))
        self._worker.shutdown()
        return reason

    async def _register(self, client: Client, hello: RegisterBlockServer) -> None:
        registration = asyncio.ensure_future(self._connect(client, hello))
        try:
            while not (await asyncio.wait({registration}, timeout=_LOOK_S))[0]:
                if not self._holds_lock():
                    # The application ended while this server was starting.
                    await asyncio.to_thread(client.close)
            await registration
        except ConnectionLostError as error:
            if not self._holds_lock():
                raise PenstockError(ExitReason.FOLDER_GONE.value) from error
            if self._launch.driver_is_known_dead:
                # It was killed while this server was starting. The receivers may be gone, too:
                # no one else would remove what they left.
                await self._work(functools.partial(self._clean_up, ExitReason.DRIVER_DEAD))
            raise

    async def _connect(self, client: Client, hello: RegisterBlockServer) -> None:
        await self._work(functools.partial(client.connect, self._launch.lease_s))
        # Longer than the lease, which tells a driver that is gone from one that is slow.
        answer = client.ask_async(hello, self._launch.lease_s + _SLOW_DRIVER_S)
        self._registered(await asyncio.wrap_future(answer))

    def _holds_lock(self) -> bool:
        return holds_lock(self._lock, lock_path(self._launch))

    async def _work(self, function: Callable[[], None]) -> None:
        """Run what may block, after all that was handed to the worker before."""
        await self._loop.run_in_executor(self._worker, function)

    def _submit(
        self, what: str, function: Callable[[], object], worker: ThreadPoolExecutor | None = None
    ) -> None:
        """Hand to the worker, or to another, what no one waits for; that it failed is logged."""

        def done(future: Future[object]) -> None:
            if (error := future.exception()) is not None:
                _logger.error("The block server could not %s", what, exc_info=error)

        (worker or self._worker).submit(function).add_done_callback(done)

    def _make_client(self, hello: RegisterBlockServer) -> Client:
        return Client(
            self._launch.link,
            on_message=lambda message: self._call(self._on_message, message),
            on_reconnect=lambda: [hello],
            on_hello_answer=lambda _, answer: self._call(self._on_hello_answer, answer),
            on_closed=lambda error: self._call(self._on_tracker_gone, error),
            name="block-server",
            options=WireOptions(
                ask_timeout_s=max(1.0, min(30.0, self._launch.lease_s)),
                give_up_after_s=max(self._launch.lease_s, self._launch.driver_timeout_s),
            ),
        )

    # -- from the client's thread to the loop --------------------------------------------------

    def _call(self, function: Callable[[_T], None], argument: _T) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
            self._loop.call_soon_threadsafe(functools.partial(function, argument))

    def _on_message(self, message: Message) -> None:
        if isinstance(message, ReleaseBlocks):
            self._submit("remove released blocks", functools.partial(self._release, message))
        elif isinstance(message, CopyBlocks):
            self._submit("copy blocks", functools.partial(self._copy, message), self._copying)
        elif isinstance(message, CheckLogs):
            self._submit("look at logs", functools.partial(self._check, message))
        elif isinstance(message, StopBlockServer):
            self._end(
                ExitReason.STOPPED_AND_REMOVED if message.remove_files else ExitReason.STOPPED
            )
        else:
            _logger.warning("the tracker sent an unexpected %s", type(message).__name__)

    def _on_hello_answer(self, answer: Message) -> None:
        try:
            self._registered(answer)
        except PenstockError as error:
            _logger.warning("%s", error)
            self._end(ExitReason.REFUSED)

    def _on_tracker_gone(self, error: WireError) -> None:
        _logger.info("%s", error)
        if self._launch.driver_is_known_dead:
            self._end(ExitReason.DRIVER_DEAD)
        elif isinstance(error, AuthenticationError):
            # Another program answers, which does not say what became of the driver.
            _logger.warning("it ends and removes nothing: %s", error)
            self._end(ExitReason.REFUSED)
        else:
            _logger.warning("it takes the driver for dead: %s", error)
            self._end(ExitReason.DRIVER_SILENT)

    # -- on the loop ---------------------------------------------------------------------------

    def _registered(self, answer: Message) -> None:
        if not isinstance(answer, BlockServerRegistered):
            raise PenstockError(f"the tracker did not register it: {answer}")
        self._lease_s = answer.lease_s

    def _end(self, reason: ExitReason) -> None:
        if not self._exit_reason.done():
            self._exit_reason.set_result(reason)

    async def _await_end(self) -> ExitReason:
        last_word_s = self._loop.time()
        while True:
            self._submit("look at memory files", self._orphans.look)
            self._submit("close logs of copies", self._replicas.close_idle)
            with contextlib.suppress(asyncio.TimeoutError):
                return await asyncio.wait_for(asyncio.shield(self._exit_reason), _LOOK_S)
            if not self._holds_lock():
                return ExitReason.FOLDER_GONE
            if self._client is not None and self._client.is_connected:
                last_word_s = self._loop.time()
            elif (
                self._loop.time() - last_word_s >= self._lease_s
                and self._launch.driver_is_known_dead
            ):
                return ExitReason.DRIVER_DEAD

    # -- files ---------------------------------------------------------------------------------

    def _release(self, message: ReleaseBlocks) -> None:
        self._replicas.release(message.attempts, message.segments)
        self._files.remove_attempts(message.attempts)
        self._files.remove_memory_of(message.memory)
        # Of a log that is open, only the log itself knows what may go.
        closed = [place for place in message.segments if not self._replicas.is_open(place[0])]
        self._files.remove_segments(tuple(closed))
        self._orphans.let_go_of_removed()

    def _copy(self, message: CopyBlocks) -> None:
        answer = self._copier.copy(message)
        if answer.reason:
            _logger.warning("blocks were not copied to %s: %s", message.host, answer.reason)
        self._send(answer)

    def _check(self, message: CheckLogs) -> None:
        missing = tuple(folder for folder in message.folders if _is_missing(folder))
        self._send(LogsMissing(self._launch.host, missing))

    def _send(self, answer: Message) -> None:
        # It need not be reported to a driver that is away: that asks again.
        with contextlib.suppress(WireError):
            if self._client is not None:
                self._client.send(answer)

    def _clean_up(self, reason: ExitReason) -> None:
        """Remove what the reason asks for, after all that was released before."""
        self._orphans.close()
        is_dead = reason in (ExitReason.DRIVER_DEAD, ExitReason.DRIVER_SILENT)
        if is_dead or reason in (ExitReason.STOPPED, ExitReason.STOPPED_AND_REMOVED):
            self._files.remove_memory()
            remove_own_files(self._launch)
        if reason is ExitReason.STOPPED_AND_REMOVED or (
            is_dead and self._launch.remove_at_lease_end
        ):
            # Before the folder: it may be the root, which goes when it is empty.
            with contextlib.suppress(OSError):
                os.unlink(log_path(self._launch))
            self._files.remove_all()
            with contextlib.suppress(OSError):
                os.rmdir(self._launch.scratch_folder)


def _is_missing(folder: str) -> bool:
    """Return whether a folder is not there; of what cannot be looked at it is not known."""
    try:
        os.stat(folder)
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False


class _Starter:
    """The pipe to the server's starter: one line goes to it, then it is closed."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(0, 1)

    def ready(self, ready: BlockServerReady) -> None:
        self.say(msgspec.json.encode(ready))

    def say(self, line: bytes) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # its starter may be gone
                os.write(self._fd, line.replace(b"\n", b" ") + b"\n")
            os.close(self._fd)
            self._fd = -1


def _read_launch() -> BlockServerLaunch:
    with open(0, "rb", closefd=False) as pipe:
        text = pipe.read()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    return msgspec.msgpack.decode(text, type=BlockServerLaunch)


def main(arguments: list[str]) -> int:
    """Run a block server until its end.

    Args:
        arguments: The number of the locked descriptor.

    Returns:
        The exit code.
    """
    lock = int(arguments[0])
    logging.basicConfig(
        format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s", level=logging.WARNING
    )
    launch = _read_launch()
    starter = _Starter()
    try:
        reason = asyncio.run(BlockServer(launch, lock).run(starter.ready))
    except (PenstockError, OSError) as error:
        if holds_lock(lock, lock_path(launch)):
            remove_own_files(launch)
        # Its starter reports that, and ends what is left of it. Once it is gone, no one wants to
        # know.
        starter.say(f"{type(error).__name__}: {error}".encode(errors="replace"))
        return 1
    _logger.info("ended: %s", reason.value)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
