"""What is checked before anything starts, so that the error comes at `start()`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import SettingError
from penstock.host.errors import NotEnoughCoresError

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["check_cores", "check_slots", "check_speculation"]

_SPECULATION = "spark.speculation"
_THRESHOLD = "spark.speculation.task.duration.threshold"

_LOCAL = re.compile(r"local(?:\[\s*([0-9]+|\*)\s*(?:,\s*[0-9]+\s*)?\])?$")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*([0-9]+)\s*\]$")


def check_cores(spark_context: SparkContext, receivers: int) -> None:
    """Check that a core is left for batches when every receiver holds one.

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
    )


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
    if receivers and threshold and settings(_SPECULATION, "false") == "true":
        raise SettingError(
            _THRESHOLD,
            threshold,
            f"with {_SPECULATION}=true Spark would start every receiver a second time after that, "
            "and kill the first; leave it unset, then only tasks of batches are speculated",
        )


def check_slots(master: str, task_cpus: int, processors: int, receivers: int) -> None:
    """Check that `master` runs more tasks at a time than there are receivers.

    Only masters that tell their cores beforehand can be checked: ``local`` and ``local-cluster``.

    Args:
        master: Spark's master.
        task_cpus: Cores that each task takes (``spark.task.cpus``).
        processors: Cores of this machine, for ``local[*]``.
        receivers: How many receivers the program has.

    Raises:
        NotEnoughCoresError: It does not.
    """
    local = _LOCAL.match(master)
    cluster = _LOCAL_CLUSTER.match(master)
    if local is not None:
        text = local.group(1) or "1"
        slots = (processors if text == "*" else int(text)) // task_cpus
        way_out = f"use local[{(receivers + 1) * task_cpus}] or more"
    elif cluster is not None:
        workers, cores = int(cluster.group(1)), int(cluster.group(2))
        slots = workers * (cores // task_cpus)
        needed = -(-(receivers + 1) // max(workers, 1)) * task_cpus
        way_out = f"use local-cluster[{workers},{needed},{cluster.group(3)}] or more"
    else:
        return
    if slots <= receivers:
        raise NotEnoughCoresError(master, slots, receivers, way_out)
