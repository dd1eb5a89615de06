"""What is checked before anything starts, so that the error comes at `start()`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.streaming.errors import NotEnoughCoresError

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["check_cores"]

_LOCAL = re.compile(r"local(?:\[\s*([0-9]+|\*)\s*(?:,\s*[0-9]+\s*)?\])?$")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*([0-9]+)\s*\]$")


def check_cores(spark_context: SparkContext, receivers: int) -> None:
    """Check that a core is left for batches when every receiver holds one.

    Only masters that tell their cores beforehand can be checked: ``local`` and ``local-cluster``.

    Raises:
        NotEnoughCoresError: No core is left.
    """
    if receivers == 0:
        return
    master = spark_context.master or ""
    cpus = int(spark_context.getConf().get("spark.task.cpus", "1") or 1)
    local = _LOCAL.match(master)
    if local is not None:
        slots = _local_cores(spark_context, local.group(1)) // cpus
        if slots <= receivers:
            way_out = f"use local[{(receivers + 1) * cpus}] or more"
            raise NotEnoughCoresError(master, slots, receivers, way_out)
        return
    cluster = _LOCAL_CLUSTER.match(master)
    if cluster is not None:
        workers, cores = int(cluster.group(1)), int(cluster.group(2))
        slots = workers * (cores // cpus)
        if slots <= receivers:
            needed = -(-(receivers + 1) // max(workers, 1)) * cpus
            way_out = f"use local-cluster[{workers},{needed},{cluster.group(3)}] or more"
            raise NotEnoughCoresError(master, slots, receivers, way_out)


def _local_cores(spark_context: SparkContext, text: str | None) -> int:
    if text is None:
        return 1
    if text != "*":
        return int(text)
    jvm = spark_context._jvm
    assert jvm is not None
    return int(jvm.java.lang.Runtime.getRuntime().availableProcessors())
