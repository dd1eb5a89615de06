"""The body of a receiver's Spark task: runs in the executor."""

from __future__ import annotations

import os
from dataclasses import dataclass

from penstock.blockstore._launch import BlockServerLaunch, ensure_block_server
from penstock.receiver import ReceiverLaunch, run_receiver
from penstock.receiver._placement import executor_id, host_name

__all__ = ["ReceiverTask"]


@dataclass(frozen=True)
class ReceiverTask:
    """Runs one attempt of a receiver, and sees to it that its host has a block server.

    Attributes:
        launch: What to run.
        remove_at_lease_end: Nothing of the blocks is of use when the driver is gone for good.
    """

    launch: ReceiverLaunch
    remove_at_lease_end: bool

    def __call__(self) -> None:
        """Run until the attempt ends; see `penstock.receiver.run_receiver`."""
        run_receiver(self.launch, ensure_block_server=self._ensure_block_server)

    def _ensure_block_server(self, launch: ReceiverLaunch) -> None:
        ensure_block_server(
            BlockServerLaunch(
                application_id=launch.application_id,
                secret=launch.secret,
                tls=launch.tls,
                tracker_address=launch.tracker_address,
                host=host_name(executor_id(), launch.executor_hosts),
                # Beside the logs, not among them: the folder of the logs may be shared.
                scratch_folder=os.path.dirname(launch.folder_of_host),
                block_log_root=launch.folder_of_host,
                memory_folder=launch.settings.memory_dir,
                listen_port=launch.settings.block_server_port,
                port_retries=launch.settings.port_max_retries,
                lease_s=launch.settings.block_server_lease_s,
                remove_at_lease_end=self.remove_at_lease_end,
            )
        )
