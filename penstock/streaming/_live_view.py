"""`LiveView`: the table of a context in a notebook, which follows it until it stops.

It is a widget of `ipywidgets` where that is installed and an IPython kernel runs the program;
elsewhere a notebook shows the table as it was when the cell ran.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from penstock.runtime.threads import OwnedThread

_READ_S = 1.0
"""How often the table is read."""

_END_S = 5.0
"""How long a reading that is under way may take to end."""

_WIDGET = "application/vnd.jupyter.widget-view+json"

_log = logging.getLogger("penstock.streaming")


class Widget(Protocol):
    """A widget that shows HTML, as `ipywidgets.HTML`."""

    value: str

    def _repr_mimebundle_(self, **arguments: object) -> dict[str, Any] | None: ...


class LiveView:
    """Keeps a widget up to date, in a thread of its own (``penstock-live-view``).

    However many cells show it, there is one widget, and an unchanged table is not sent.

    Args:
        widget: The widget.
        read: Returns the table as HTML; it does not wait.
        every_s: How often it is read.
    """

    def __init__(self, widget: Widget, read: Callable[[], str], every_s: float = _READ_S) -> None:
        self._widget = widget
        self._read = read
        self._every_s = every_s
        self._closed = threading.Event()
        self._thread = OwnedThread(self._run, "live-view")
        self._thread.start()

    def mimebundle(self) -> dict[str, Any]:
        """Return the view for one more cell, by its type."""
        bundle = self._widget._repr_mimebundle_() or {}
        return {_WIDGET: bundle[_WIDGET]} if _WIDGET in bundle else {}

    def close(self) -> None:
        """Show the last reading, and follow no more."""
        self._closed.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        shown = ""
        is_last = False
        while not is_last:
            is_last = self._closed.wait(self._every_s)
            try:
                now = self._read()
                if now != shown:
                    self._widget.value = shown = now
            except Exception:  # noqa: BLE001  # whatever it is, the streams go on without it
                _log.exception("The live table of the streams is not shown any more")
                return


def open_live_view(read: Callable[[], str]) -> LiveView | None:
    """Return a view of what `read` returns, or None where there are no widgets."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    try:
        from ipywidgets import HTML
    except ImportError:
        return None
    return LiveView(HTML(read()), read)
