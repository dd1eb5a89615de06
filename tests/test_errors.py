"""Errors that leave a process: what they say and carry is the same on the other side."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
import types
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

import penstock
from penstock.errors import PenstockError, encodable, text_of, typed_text
from penstock.user_errors import FailedTaskError
from penstock.wal import CorruptRecordError
from tests.doubles import UntoldError

MODULES = [
    module.name
    for module in pkgutil.walk_packages(penstock.__path__, "penstock.")
    if not module.name.endswith("__main__")
]


def error_classes(base: type[PenstockError]) -> Iterator[type[PenstockError]]:
    """Yield the base and all that stand below it in the package."""
    yield base
    for kind in base.__subclasses__():
        if kind.__module__.startswith("penstock."):
            yield from error_classes(kind)


def sample(wanted: Any) -> Any:
    """Return a value of the annotated type, not the default of any parameter."""
    if isinstance(wanted, types.UnionType):
        return sample(next(one for one in wanted.__args__ if one is not type(None)))
    if typing.get_origin(wanted) is tuple:
        return (sample(wanted.__args__[0]),)
    if isinstance(wanted, type):
        if issubclass(wanted, PenstockError):
            return made(wanted)
        if issubclass(wanted, BaseException):
            return wanted("cause")
        if issubclass(wanted, Enum):
            return list(wanted)[-1]
    samples = {str: "text", int: 7, float: 1.5, bool: True, bytes: b"id", object: "thing"}
    return samples[wanted]


def made(kind: type[PenstockError]) -> PenstockError:
    """Return an error of this kind, made by its own constructor."""
    if kind.__init__ is Exception.__init__ or not inspect.isfunction(kind.__init__):
        return kind("what went wrong")
    types_of = typing.get_type_hints(kind.__init__)
    parameters = list(inspect.signature(kind.__init__).parameters)[1:]
    # The damages of a damage are of its own kind: there the default stands.
    return kind(**{name: sample(types_of[name]) for name in parameters if name != "damages"})


@pytest.fixture(scope="module")
def kinds() -> set[type[PenstockError]]:
    for name in MODULES:
        importlib.import_module(name)
    return set(error_classes(PenstockError))


def test_every_error_survives_pickling_with_its_text_and_attributes(
    kinds: set[type[PenstockError]],
) -> None:
    assert len(kinds) > 70
    for kind in kinds:
        error = made(kind)
        # What Spark raised stays in its process.
        kept = {**vars(error), "error": None} if kind is FailedTaskError else vars(error)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind
        assert (str(again), again.args) == (str(error), error.args)
        assert {name: repr(value) for name, value in vars(again).items()} == {
            name: repr(value) for name, value in kept.items()
        }
        if isinstance(error, ImportError):
            assert again.msg == error.msg


def test_no_two_errors_have_one_name(kinds: set[type[PenstockError]]) -> None:
    names = [kind.__name__ for kind in kinds]
    assert sorted(names) == sorted(set(names))


def test_an_error_that_leads_back_to_itself_survives_pickling() -> None:
    other = CorruptRecordError(2, 64, "checksum", "/log")
    error = CorruptRecordError(1, 0, "checksum", "/log", (other,))
    again = pickle.loads(pickle.dumps(CorruptRecordError(1, 0, "checksum")))
    assert again.damages == (again,)
    assert [one.segment for one in pickle.loads(pickle.dumps(error)).damages] == [2]


def test_what_an_error_says_can_be_shown_and_sent_whatever_it_is() -> None:
    assert text_of(ValueError("plain")) == "plain"
    assert text_of(UntoldError()) == "(its text cannot be shown: TypeError in __str__)"
    assert typed_text(ValueError("a\ud800b")) == "ValueError: a\\ud800b"
    assert encodable("Grüße, 世界") == "Grüße, 世界"
