"""The Kafka clients that can be used, behind one interface.

What must hold
--------------

* A client is imported when a stream is made that uses it, and not before.
* Driver and executors use the same one: its name travels with the settings.
* Nothing outside this room knows a client's classes, records or errors.
* Records stay in the client's own form until they are wanted as Python objects or as columns, and
  are turned into these in bulk.

Layout
------

===============  =================================================================================
`interface`      what a client must be able to do, and the errors that it raises
`kafka_python`   kafka-python: needs nothing but Python; how it is set up is in
                 `_kafka_python_client`
`confluent`      confluent-kafka: librdkafka, some four times as fast; how it is set up is in
                 `_confluent_client`
`transactions`   what `KafkaSink` needs of confluent-kafka; kafka-python's is not good enough
===============  =================================================================================
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache

from penstock.errors import MissingPackageError
from penstock.sources.kafka.engines.interface import Engine

__all__ = ["ENGINES", "engine_of", "installed_engine", "package_of"]

_MODULES = {
    "confluent-kafka": ("confluent_kafka", "penstock.sources.kafka.engines.confluent"),
    "kafka-python": ("kafka", "penstock.sources.kafka.engines.kafka_python"),
}
ENGINES = tuple(_MODULES)
"""Their names, the faster first."""


def installed_engine() -> str:
    """Return the name of the fastest client that is installed.

    Raises:
        MissingPackageError: None is.
    """
    for name, (package, _) in _MODULES.items():
        try:
            if importlib.util.find_spec(package) is not None:
                return name
        except ValueError:
            continue
    raise _missing("kafka-python")


def _missing(name: str) -> MissingPackageError:
    extra = "confluent" if name == "confluent-kafka" else "kafka"
    where = f"the package {name} on the driver and on every executor"
    return MissingPackageError("a stream of Kafka", where, extra)


def package_of(name: str) -> str:
    """Return what must be importable for a client."""
    return _MODULES[name][0]


@cache
def engine_of(name: str) -> Engine:
    """Return a client by its name.

    Raises:
        MissingPackageError: It is not installed.
        ValueError: There is none of that name.
    """
    if name not in _MODULES:
        raise ValueError(f"penstock.engine is {' or '.join(ENGINES)}, and not {name!r}")
    try:
        module = importlib.import_module(_MODULES[name][1])
    except ImportError as error:
        raise _missing(name) from error
    engine: Engine = module.ENGINE
    return engine
