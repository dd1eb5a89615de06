"""`ReplicaHosts`: which other hosts have the copies of a receiver's blocks.

A receiver's host has a block server, because the receiver starts it. Where copies are wanted, other
hosts need one, too: a small Spark job starts it on hosts without receivers, until there are as many
more hosts with a server than there are such receivers as a block has copies. Its tasks are placed
by a wish, which Spark may not grant; so this is checked afterwards, and repeated a few times.

The same job starts a block server on a host that lost its own and has no receiver that would start
another, so that other hosts can read what it has.
"""

from __future__ import annotations

import logging
import math
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace

from penstock.blockstore.server.launch import BlockServerLaunch, ensure_block_server
from penstock.receiver.attempts.task import executor_id, host_name
from penstock.runtime.clock import Clock
from penstock.tracker.cluster import Cluster, ExecutorLocation
from penstock.tracker.hosts.block_servers import BlockServers
from penstock.wire.messages import FindReplicaHost, ReplicaHostAt

_log = logging.getLogger("penstock.tracker")

_ROUNDS = 3
"""How many jobs are run at most to get a server onto a certain host."""
_PAUSE_S = 10.0
"""Pause after a search in which nothing is started unless a certain host is asked for."""
_JOB_S = 30.0
"""A job that takes longer is cancelled: an executor may be out of reach."""
_JOIN_S = 10.0
_FRESH_S = 1.0
"""How long the list of hosts with executors is reused."""


@dataclass(frozen=True)
class BlockServerStart:
    """The body of a task: makes sure that its host has a block server.

    Attributes:
        launch: What the server needs to know, but for its host.
        executor_hosts: Executor id to host, as the driver knows them.
    """

    launch: BlockServerLaunch
    executor_hosts: Mapping[str, str]

    def __call__(self) -> None:
        """Run in an executor.

        Raises:
            PenstockError: It could not be started.
        """
        host = host_name(executor_id(), self.executor_hosts)
        ensure_block_server(replace(self.launch, host=host))


class ReplicaHosts:
    """Finds hosts for copies, and has block servers started on them. Safe to use from any thread.

    `_lock` guards its state. Looking and starting is done by threads
    ``penstock-replica-hosts``, one at a time.

    Args:
        cluster: Where executors are.
        block_servers: The block servers.
        receivers: How many receivers want copies of their blocks; with 0 a server is started only
            on a host that is asked for.
        copies: How many copies of a block they want at most, beside the receiver's.
        launch: Makes what a block server needs to know, but for its host.
        receiver_hosts: Returns the hosts of the receivers, which start block servers themselves.
        clock: Time.

    Attributes:
        servers: The block servers.
        leaving: Hosts that are about to go: they get copies only if there are no others.
    """

    def __init__(
        self,
        cluster: Cluster,
        block_servers: BlockServers,
        *,
        receivers: int,
        copies: int,
        launch: Callable[[], BlockServerLaunch],
        receiver_hosts: Callable[[], Iterable[str]],
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self.servers = block_servers
        self._receivers = receivers
        self._copies = copies
        self._launch = launch
        self._receiver_hosts = receiver_hosts
        self._clock = clock
        self._tag = f"penstock-replica-hosts-{uuid.uuid4().hex}"
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_looking = False
        self._began_s = 0.0
        self._next_s = 0.0
        self._stopped = False
        self._asked_for: set[str] = set()
        # None while executors are being asked for.
        self._wanted: frozenset[str] | None = frozenset()
        self._hosts: frozenset[str] = frozenset()
        self._hosts_at_s = -math.inf
        # Two are enough to know that none is alone.
        self._seen: frozenset[str] = frozenset()
        self.leaving: frozenset[str] = frozenset()
        self._racks: Mapping[str, str] = {}

    # -- questions -----------------------------------------------------------------------------

    def find(self, message: FindReplicaHost) -> ReplicaHostAt:
        """Name a host for an attempt's copies: another rack's if racks are known.

        The same one for the attempt as long as the hosts stay the same.
        """
        served = self.servers.served()
        others = sorted(served.keys() - {message.host, *message.silent})
        others = [host for host in others if host not in self.leaving] or others
        if others:
            with self._lock:
                racks = self._racks
            mine = racks.get(message.host)
            elsewhere = [host for host in others if mine and racks.get(host, mine) != mine]
            hosts = elsewhere or others
            host = hosts[int(message.attempt, 16) % len(hosts)]
            return ReplicaHostAt(host, served[host], False, False)
        self.look()
        me = {message.host}
        coming = frozenset(self._receiver_hosts()) - served.keys()
        with self._lock:
            seen = self._seen | self.servers.ever()
            is_asking = self._is_looking and self._wanted is None
            coming |= self._wanted or frozenset()
        is_expected = is_asking or bool(self._with_executors(coming - me - {*message.silent}))
        return ReplicaHostAt(None, None, is_expected, not seen - me)

    def is_expected(self, host: str) -> bool:
        """Return whether a block server is being started on the host."""
        with self._lock:
            is_wanted = self._wanted is not None and host in self._wanted
        return is_wanted and bool(self._with_executors({host}))

    def _with_executors(self, hosts: Set[str]) -> Set[str]:
        """Return the hosts that have executors; a lost host has none."""
        if not hosts:
            return hosts
        with self._lock:
            is_old = self._clock.monotonic_s() - self._hosts_at_s > _FRESH_S
        if is_old:
            found = frozenset(executor.host for executor in self._cluster.executors())
            with self._lock:
                self._hosts, self._hosts_at_s = found, self._clock.monotonic_s()
        with self._lock:
            return hosts & self._hosts

    # -- starting ------------------------------------------------------------------------------

    def look(self, host: str | None = None) -> None:
        """Have servers started where they are missing; returns at once.

        Args:
            host: One that should have a server, whatever the others have.
        """
        with self._lock:
            if self._stopped or not (self._receivers or host) or self._cluster.is_local:
                return
            now_s = self._clock.monotonic_s()
            if host is not None:
                self._asked_for.add(host)
            if self._is_looking:
                is_stuck = now_s - self._began_s > _JOB_S
            else:
                is_stuck = False
                if host is None and now_s < self._next_s:
                    return
                self._is_looking = True
                self._wanted = None
                self._began_s = now_s
                self._thread = self._cluster.thread(self._run, "penstock-replica-hosts")
                self._thread.start()
        if is_stuck:
            self._cluster.cancel(self._tag)

    def stop(self) -> None:
        """Start no more."""
        with self._lock:
            self._stopped = True
            thread = self._thread
        if thread is not None and thread.is_alive():
            self._cluster.cancel(self._tag)
            thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            for _ in range(_ROUNDS):
                executors = self._cluster.executors()
                racks = self._racks_now()
                wanted = self._missing(executors)
                with self._lock:
                    self._racks = racks
                    if len(self._seen) < 2:
                        self._seen |= {executor.host for executor in executors}
                    self._wanted = frozenset(wanted)
                if not wanted or self._stopped:
                    return
                _log.info("block servers are started on %s", ", ".join(wanted))
                start = BlockServerStart(
                    self._launch(), {found.executor_id: found.host for found in executors}
                )
                self._cluster.run_on_hosts(self._tag, start, wanted)
        except Exception as error:  # noqa: BLE001 - whatever a job dies of; it is tried again later
            if not self._stopped:
                _log.warning("block servers were not started: %s", _first_line(error))
        finally:
            with self._lock:
                self._is_looking = False
                self._wanted = frozenset()
                self._asked_for.clear()
                self._next_s = self._clock.monotonic_s() + _PAUSE_S

    def _racks_now(self) -> Mapping[str, str]:
        try:
            return self._cluster.racks()
        except Exception as error:  # noqa: BLE001 - a part of Spark that may change; any host will do
            _log.info("Spark does not tell the racks of hosts: %s", _first_line(error))
            return {}

    def _missing(self, executors: Iterable[ExecutorLocation]) -> list[str]:
        """Return where servers are to be started.

        Until there are enough for as many receivers on as many hosts, and their copies.
        """
        served = self.servers.served()
        there = {*served, *self._receiver_hosts()}
        with self._lock:
            asked_for = set(self._asked_for)
        hosts = sorted({executor.host for executor in executors})
        must = [host for host in hosts if host in asked_for and host not in served]
        if not self._receivers:
            return must
        may = [host for host in hosts if host not in there and host not in asked_for]
        return must + may[: max(0, self._receivers + self._copies - len(there) - len(must))]


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
