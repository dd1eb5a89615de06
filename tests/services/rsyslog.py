"""A real rsyslogd that sends what its own socket is given to a port of loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds import HANG_S

_CONFIGURATION = """
global(workDirectory="{folder}" maxMessageSize="256k")
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{folder}/log" RateLimit.Interval="0")
action(type="omfwd" target="127.0.0.1" port="{port}" protocol="{protocol}"
       TCP_Framing="{framing}" template="{template}" action.resumeRetryCount="-1"
       action.resumeInterval="1")
"""


@contextlib.contextmanager
def rsyslog_to(
    folder: Path,
    port: int,
    *,
    protocol: str = "tcp",
    framing: str = "octet-counted",
    template: str = "RSYSLOG_SyslogProtocol23Format",
) -> Iterator[Path]:
    """Run one; its value is the socket that `logger -u` writes to."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    binary = shutil.which("rsyslogd", path=path)
    if binary is None:
        pytest.skip("platform: no rsyslogd; Debian's package is rsyslog")
    configuration = folder / "rsyslog.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            folder=folder, port=port, protocol=protocol, framing=framing, template=template
        )
    )
    command = [binary, "-n", "-f", str(configuration), "-i", str(folder / "pid")]
    with open(folder / "said", "wb") as said, subprocess.Popen(command, stderr=said) as process:
        try:
            end_s = time.monotonic() + HANG_S
            while not (folder / "log").exists():
                if process.poll() is not None or time.monotonic() > end_s:
                    raise AssertionError((folder / "said").read_text())
                time.sleep(0.01)
            yield folder / "log"
        finally:
            process.terminate()
            process.wait(HANG_S)


def log(*arguments: str) -> None:
    """Run the real logger."""
    binary = shutil.which("logger")
    if binary is None:
        pytest.skip("platform: no logger; Debian's package is bsdutils")
    subprocess.run([binary, *arguments], check=True, timeout=HANG_S)
