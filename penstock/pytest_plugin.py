"""Fixtures of `penstock.testing` for pytest, which finds them by itself.

It is imported by every pytest where Penstock is installed, so it imports no PySpark by itself.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing import CrashReport, RunningReceiver


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add how often and from which seed `crash_test` kills."""
    group = parser.getgroup("penstock")
    group.addoption("--penstock-kills", type=int, metavar="N", help="kills of each crash_test")
    group.addoption("--penstock-seed", type=int, metavar="N", help="the seed of each crash_test")


@pytest.fixture
def run_receiver() -> Iterator[Callable[..., RunningReceiver]]:
    """`penstock.testing.run_receiver`, whose receivers run until the test's end."""
    from penstock import testing

    with contextlib.ExitStack() as running:

        def run(receiver: object, **named: Any) -> RunningReceiver:
            return running.enter_context(testing.run_receiver(receiver, **named))

        yield run


@pytest.fixture
def crash_test(pytestconfig: pytest.Config) -> Callable[..., CrashReport]:
    """`penstock.testing.crash_test`; ``--penstock-kills`` and ``--penstock-seed`` go before."""
    from penstock import testing

    asked = {
        name: value
        for name in ("kills", "seed")
        if (value := pytestconfig.getoption(f"penstock_{name}")) is not None
    }

    @functools.wraps(testing.crash_test)
    def crash(*args: Any, **named: Any) -> CrashReport:
        return testing.crash_test(*args, **{**named, **asked})

    return crash
