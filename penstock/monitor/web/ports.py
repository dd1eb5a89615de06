"""On which address the server listens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_TRIES = 16
"""As many tries as Spark makes for its own page (`spark.port.maxRetries`)."""
_LAST_PORT = 65_535


def listen_host(host: str | None, spark_conf: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Return the address to listen on.

    Args:
        host: `spark.penstock.ui.host`.
        spark_conf: Spark's configuration.
        environ: The environment.

    Returns:
        What the setting says; else the address to which Spark binds the driver. A program on this
        host alone is seen from this host alone.
    """
    if host is not None:
        return host
    if spark_conf.get("spark.master", "").startswith("local"):
        return "127.0.0.1"
    bound = spark_conf.get("spark.driver.bindAddress") or environ.get("SPARK_LOCAL_IP")
    return bound or spark_conf.get("spark.driver.host") or "127.0.0.1"


def ports_near(port: int) -> Iterator[int]:
    """Yield the ports to try: the one that is set, those behind it, and at last any."""
    if port:
        yield from range(port, min(port + _TRIES, _LAST_PORT) + 1)
    yield 0
