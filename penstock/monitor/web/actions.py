"""``POST /api/penstock/actions/…``: what a holder of the token may do to a running program."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from penstock.dead_letters import letter_key
from penstock.errors import IllegalStateError, PenstockError, encodable, typed_text
from penstock.monitor.application import Application
from penstock.monitor.model import Model
from penstock.monitor.web.access import Access
from penstock.monitor.web.exchange import Answer, Request, json_answer, text_answer
from penstock.rates import RateSource

ROOT = "/api/penstock/actions/"

_REFUSED = (
    "this needs the token of the run: use the penstock command as the user who started the "
    "program, or with that token in PENSTOCK_TOKEN, or open the page by the link that "
    "`penstock apps` prints"
)
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_DIGEST = re.compile(r"([0-9a-f]{32})?")


def _names_a_letter(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and isinstance(value[0], str)
        and type(value[1]) is int
        and 0 < value[1] < 1 << 63
        and isinstance(value[2], str)
        and _DIGEST.fullmatch(value[2]) is not None
    )


class Actions:
    """Does what a request asks, if it may.

    Args:
        model: Of the application it is done to; it keeps a note of it.
        access: Says who may act.
    """

    def __init__(self, model: Model, access: Access) -> None:
        self._model = model
        self._access = access
        self._tap = Tap(model.application)
        self._actions: dict[str, Callable[[dict[str, Any]], object]] = {
            "rate": self._rate,
            "pause": self._pause,
            "resume": self._resume,
            "restart": self._restart,
            "seal": self._seal,
            "stop": self._stop,
            "send": self._send,
            "tap": self._records,
            "login": self._login,
        }

    def answer(self, request: Request) -> Answer:
        """Do it; answer what was done, or why not."""
        if not self._access.may_act(request):
            return text_answer(self._access.what_is_wrong(request) + _REFUSED, 403)
        if not request.headers.get("content-type", "").startswith("application/json"):
            return text_answer("the body must be application/json", 415)
        action = self._actions.get(request.path.removeprefix(ROOT))
        if action is None:
            return text_answer(
                f"there is no such action; there are {', '.join(self._actions)}", 404
            )
        try:
            return json_answer({"done": action(request.json())})
        except IllegalStateError as error:
            return text_answer(str(error), 409)
        except (PenstockError, ValueError, TypeError) as error:
            return text_answer(str(error), 400)

    def _rate(self, asked: dict[str, Any]) -> str:
        stream_id, name = self._stream(asked)
        if "rate" not in asked:
            raise ValueError("rate is missing: null is for no rate of its own")
        rate = asked["rate"]
        # On a command line and in a field of the page a number is also text.
        is_number = isinstance(rate, str) and _NUMBER.fullmatch(rate)
        self._model.application.set_rate(stream_id, float(rate) if is_number else rate)
        done = f"{name}: {'no rate of its own' if rate is None else f'rate {rate}'}"
        self._model.note(f"{done} (set from outside)", stream_id)
        return done

    def _pause(self, asked: dict[str, Any]) -> str:
        stream_id, name = self._stream(asked)
        self._model.application.set_paused(stream_id, True)
        self._model.note(f"{name} was paused from outside", stream_id)
        return f"{name} is paused"

    def _resume(self, asked: dict[str, Any]) -> str:
        stream_id, name = self._stream(asked)
        self._model.application.set_paused(stream_id, False)
        self._model.note(f"{name} goes on (from outside)", stream_id)
        return f"{name} goes on"

    def _restart(self, asked: dict[str, Any]) -> str:
        stream_id, name = self._stream(asked)
        receivers = self._model.application.receivers_of(stream_id)
        receivers.restart(stream_id, "it was asked for from outside")
        self._model.note(f"{name} was restarted from outside", stream_id)
        return f"{name} stops and starts again"

    def _seal(self, asked: dict[str, Any]) -> str:
        stream_id, name = self._stream(asked)
        self._model.application.receivers_of(stream_id).seal(stream_id)
        self._model.note(f"{name} seals its open block (asked from outside)", stream_id)
        return f"{name} seals its open block"

    def _send(self, asked: dict[str, Any]) -> dict[str, Any]:
        stream_id, name = self._stream(asked)
        letters, again = asked.get("letters"), asked.get("again", False)
        hosted = self._model.application.hosted
        if asked.get("program", "") != ("" if hosted is None else hosted.letters_program):
            return {"sent": 0, "left": [], "isOther": True}
        if not isinstance(again, bool):
            raise TypeError("again is true or false")
        if not isinstance(letters, list) or not all(map(_names_a_letter, letters)):
            raise TypeError(
                "letters is a list of dead letters: log, number in it, digest or nothing"
            )
        rate = self._model.application.rates().get(stream_id)
        if rate is not None and rate.source is RateSource.PAUSED:
            raise IllegalStateError(f"{name} is paused: resume it, or nothing of it passes")
        done = self._model.application.receivers_of(stream_id).send_letters(
            stream_id,
            [
                ((log, at), letter_key((log, at), bytes.fromhex(digest)))
                for log, at, digest in letters
            ],
            again,
        )
        self._model.note(f"{done.stored} dead letters of {name} were sent from outside", stream_id)
        left = [[*letter, why] for letter, why in done.left]
        return {"sent": done.stored, "left": left, "isOther": False}

    def _stop(self, asked: dict[str, Any]) -> str:
        graceful = asked.get("graceful", True)
        if not isinstance(graceful, bool):
            raise TypeError("graceful is true or false")
        how = "gracefully" if graceful else "at once"
        self._model.note(f"stopping {how} (asked from outside)")
        self._model.application.stop(graceful)
        return f"stopping {how}"

    def _records(self, asked: dict[str, Any]) -> dict[str, Any]:
        stream_id, _ = self._stream(asked)
        try:
            return self._tap.records(stream_id, asked.get("count"))
        except (PenstockError, ValueError):
            raise
        except Exception as error:  # a record's own, which is unpickled
            raise ValueError(f"its records cannot be shown: {typed_text(error)}") from error

    def _login(self, asked: dict[str, Any]) -> str:
        return f"#code={self._access.new_code()}"

    def _stream(self, asked: dict[str, Any]) -> tuple[int, str]:
        wanted = asked.get("stream")
        streams = self._model.application.streams
        names = {f"{name}-{stream_id}": stream_id for stream_id, name in streams.items()}
        for stream_id, name in streams.items():
            # True is 1 as well.
            is_number = type(wanted) is int and wanted == stream_id
            if is_number or wanted in (str(stream_id), f"{name}-{stream_id}"):
                return stream_id, f"{name}-{stream_id}"
        by_name = [stream_id for stream_id, name in streams.items() if name == wanted]
        if len(by_name) == 1:
            return by_name[0], f"{wanted}-{by_name[0]}"
        raise ValueError(
            f"there is no stream {wanted!r:.200}; there are {', '.join(sorted(names))}"
        )


# `Tap`: some records as they pass, for those who may act.
#
# It reads the first records of a stream's newest block, one block at a time for all who ask:
# neither receivers nor batches wait for it.

_MOST_RECORDS = 1000
_MOST_CHARACTERS = 2000
_DEPTH = 20


class Tap:
    """Shows records of an application's streams.

    Args:
        application: Whose.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._reading = threading.Lock()

    def records(self, stream_id: int, count: object) -> dict[str, Any]:
        """Return the newest block's id, None where there is none, and its first records.

        Raises:
            ValueError: The count is not accepted, or another reads just now.
            IllegalStateError: The stream has no receiver.
        """
        if type(count) is not int or not 1 <= count <= _MOST_RECORDS:
            raise ValueError(f"count={count!r:.100} is not accepted: 1 to {_MOST_RECORDS}")
        if not self._reading.acquire(timeout=1.0):
            raise ValueError("somebody else reads a block just now; ask again")
        try:
            found = self._application.newest_records(stream_id, count)
        finally:
            self._reading.release()
        if found is None:
            return {"block": None, "records": []}
        block, records = found
        return {"block": block, "records": [_as_json(record, _DEPTH) for record in records]}


def _as_json(value: Any, depth: int) -> Any:
    """Return what JSON has for a record; what it has nothing for becomes text."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value[:_MOST_CHARACTERS]).decode("utf-8", "backslashreplace")
    if depth and isinstance(value, Mapping):
        pairs = list(value.items())[:_MOST_RECORDS]
        return {_text(key): _as_json(item, depth - 1) for key, item in pairs}
    if depth and isinstance(value, (list, tuple)):
        return [_as_json(item, depth - 1) for item in value[:_MOST_RECORDS]]
    return _text(value)


def _text(value: Any) -> str:
    return encodable(value if isinstance(value, str) else str(value))[:_MOST_CHARACTERS]
