"""SIGTERM in Spark's JVM: ignored while a context or a host wants that, and as before after."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.host.interrupts import IgnoredTermination

pytestmark = pytest.mark.slow


def handler_now(sc: Any) -> str:
    """Return the class of what the JVM does at SIGTERM: asked by setting another one for a moment.

    One of the JVM's own is wrapped anew each time.
    """
    misc = sc._jvm.sun.misc
    term = misc.Signal("TERM")
    found = misc.Signal.handle(term, misc.SignalHandler.SIG_DFL)
    misc.Signal.handle(term, found)
    return str(found.getClass().getName())


def test_the_jvm_ignores_it_until_the_last_one_that_wants_that_ends(sc: Any) -> None:
    before = handler_now(sc)
    first, second = IgnoredTermination(sc), IgnoredTermination(sc)
    first.begin()
    ignoring = handler_now(sc)
    assert ignoring != before
    second.begin()
    first.end()
    first.end()
    assert handler_now(sc) == ignoring
    second.end()
    assert handler_now(sc) == before
