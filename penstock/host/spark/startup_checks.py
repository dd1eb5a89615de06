"""What is checked before anything starts, so that the error comes at `start()`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import SettingError
from penstock.host.errors import NotEnoughCoresError
from penstock.settings import Settings
from penstock.settings.values import Size

if TYPE_CHECKING:
    from pyspark import SparkContext

_SPECULATION = "spark.speculation"
_THRESHOLD = "spark.speculation.task.duration.threshold"

_WORKER_MEMORY = "spark.executor.pyspark.memory"
_CORES = "spark.executor.cores"
_PROCESS_BYTES = 3 << 29
"""Address space of a receiver's process beside its shared memory: 1.1 GB with the own threads."""

_LOCAL = re.compile(r"local(?:\[\s*([0-9]+|\*)\s*(?:,\s*[0-9]+\s*)?\])?$")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*([0-9]+)\s*\]$")


def check_cores(
    spark_context: SparkContext,
    receivers: int,
    running: int = 0,
    tasks: int | None = None,
    functions: int = 0,
    *,
    has_batches: bool = True,
) -> None:
    """Check that a core is left for batches when every task of receivers holds one.

    Args:
        spark_context: The Spark context.
        receivers: How many receivers the program has.
        running: How many tasks of receivers the application has already.
        tasks: How many tasks they are that share some; None: one each.
        functions: How many tasks call functions of continuous streams.
        has_batches: Whether anything but such functions has records.

    Raises:
        NotEnoughCoresError: None is left.
    """
    if receivers == 0:
        return
    jvm = spark_context._jvm
    assert jvm is not None
    check_slots(
        spark_context.master or "",
        int(spark_context.getConf().get("spark.task.cpus", "1") or 1),
        int(jvm.java.lang.Runtime.getRuntime().availableProcessors()),
        receivers,
        running,
        tasks,
        functions,
        has_batches=has_batches,
    )


def check_spark_settings(
    spark_settings: Callable[[str, str], str | None],
    settings: Settings,
    receivers: int,
    in_process: int | None = None,
) -> None:
    """Check that Spark's own settings let receivers run.

    Args:
        spark_settings: Returns Spark's setting of a name, or what is given for it.
        settings: Penstock's.
        receivers: How many receivers the program has.
        in_process: How many share a process at most; None: as the settings say.

    Raises:
        SettingError: They do not.
    """
    check_speculation(spark_settings, receivers)
    shared = in_process or min(receivers, settings.receivers_per_slot)
    check_worker_memory(spark_settings, max(1, shared) * settings.memory_bytes, receivers)


def check_speculation(settings: Callable[[str, str], str | None], receivers: int) -> None:
    """Check that Spark does not take a receiver for a task that is slow.

    It runs no second copy of a job's only task, unless there is a threshold; then the copy would
    end first, as receivers have no end, and Spark would kill the receiver.

    Args:
        settings: Returns Spark's setting of a name, or what is given for it.
        receivers: How many receivers the program has.

    Raises:
        SettingError: It does.
    """
    threshold = settings(_THRESHOLD, "")
    # As Spark takes it; Python's True comes as "True".
    speculates = (settings(_SPECULATION, "") or "").strip().lower() == "true"
    if receivers and threshold and speculates:
        raise SettingError(
            _THRESHOLD,
            threshold,
            f"with {_SPECULATION}=true Spark would start every receiver a second time after that, "
            "and kill the first; leave it unset, then only tasks of batches are speculated",
        )


def check_worker_memory(
    settings: Callable[[str, str], str | None], memory_bytes: int, receivers: int
) -> None:
    """Check that Spark lets the process of a receiver have the memory that it needs.

    Spark bounds the address space of Python workers. One that may have no more can wait for ever
    for a thread that does not start (CPython's issue 140746), and so no one would hear of it.

    Args:
        settings: Returns Spark's setting of a name, or what is given for it.
        memory_bytes: ``spark.penstock.memory.size`` of all receivers of a process.
        receivers: How many receivers the program has.

    Raises:
        SettingError: It does not.
    """
    text = (settings(_WORKER_MEMORY, "") or "").strip()
    if not (receivers and text):
        return
    # As in Spark, a bare number counts MiB, and the workers of an executor share it by its cores.
    try:
        whole = Size(0, 1 << 60).read(text if text[-1].isalpha() else f"{text}m")
    except ValueError:
        accepted = "a size such as 4g (a bare number counts MiB)"
        raise SettingError(_WORKER_MEMORY, text, accepted) from None
    cores = (settings(_CORES, "") or "1").strip()
    if not (cores.isdecimal() and int(cores)):
        raise SettingError(_CORES, cores, "a whole number, 1 or more")
    share = whole // int(cores)
    needed = memory_bytes + _PROCESS_BYTES
    if share < needed:
        raise SettingError(
            _WORKER_MEMORY,
            text,
            f"a receiver's process needs about {needed >> 20}m of address space, "
            f"{memory_bytes >> 20}m of them for spark.penstock.memory.size, and may have "
            f"{share >> 20}m (the setting, divided by spark.executor.cores); give more, lower "
            "spark.penstock.memory.size, or leave it unset",
        )


def check_slots(
    master: str,
    task_cpus: int,
    processors: int,
    receivers: int,
    running: int = 0,
    tasks: int | None = None,
    functions: int = 0,
    *,
    has_batches: bool = True,
) -> None:
    """Check that `master` runs more tasks at a time than there are tasks of receivers.

    Only masters whose cores are known beforehand can be checked: ``local`` and ``local-cluster``.
    Without batches ``local`` needs none for anything else; on a cluster the jobs that start block
    servers do.

    Args:
        master: Spark's master.
        task_cpus: Cores that each task takes (``spark.task.cpus``).
        processors: Cores of this machine, for ``local[*]``.
        receivers: How many receivers the program has.
        running: How many tasks of receivers the application has already.
        tasks: How many tasks they are that share some; None: one each.
        functions: How many tasks call functions of continuous streams.
        has_batches: Whether anything but such functions has records.

    Raises:
        NotEnoughCoresError: It does not.
    """
    running += functions
    shared = tasks is not None and tasks < receivers
    tasks = running + (receivers if tasks is None else tasks)
    local = _LOCAL.match(master)
    beside = 1 if has_batches or local is None else 0
    cluster = _LOCAL_CLUSTER.match(master)
    if local is not None:
        text = local.group(1) or "1"
        slots = (processors if text == "*" else int(text)) // task_cpus
        way_out = f"use local[{(tasks + beside) * task_cpus}] or more"
    elif cluster is not None:
        workers, cores = int(cluster.group(1)), int(cluster.group(2))
        slots = workers * (cores // task_cpus)
        needed = -(-(tasks + 1) // max(workers, 1)) * task_cpus
        way_out = f"use local-cluster[{workers},{needed},{cluster.group(3)}] or more"
    else:
        return
    if slots >= tasks + beside:
        return
    left = slots - beside - running
    if left > 0:
        per_slot = -(-receivers // left)
        way_out += f", or let them share tasks: spark.penstock.receivers.perSlot={per_slot}"
    raise NotEnoughCoresError(
        master,
        slots,
        tasks,
        way_out,
        shared=shared,
        functions=functions,
        lacks="no batch could run" if has_batches else "some could not start",
    )
