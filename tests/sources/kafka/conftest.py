"""One broker for the session, or those that `PENSTOCK_TEST_KAFKA` names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.sources.kafka.engines import ENGINES
from tests.services.jars import JarsMissingError
from tests.services.kafka import Broker, Kafka

HERE = Path(__file__).parent
NAMED = "PENSTOCK_TEST_KAFKA"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave what takes long with the second client to `make test-all`."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("long"):
            callspec = getattr(item, "callspec", None)
            if callspec is not None and ENGINES[1] in callspec.params.values():
                item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches wait for brokers of a busy machine, instead of taking nothing with a warning."""
    monkeypatch.setattr("penstock.sources.kafka.direct_stream._ASK_S", 30.0)


@pytest.fixture(params=ENGINES)
def broker(started: Kafka, request: pytest.FixtureRequest) -> Kafka:
    """Brokers, read by each of the clients."""
    started.engine = request.param
    return started


@pytest.fixture(params=ENGINES)
def mortal(own: Broker, request: pytest.FixtureRequest) -> Broker:
    """A broker that may be killed and is started again by the test, read by each client."""
    own.engine = request.param
    return own


@pytest.fixture(scope="session")
def started(request: pytest.FixtureRequest) -> Kafka:
    """Brokers that run."""
    address = os.environ.get(NAMED)
    if address:
        return Kafka(address)
    found: Kafka = request.getfixturevalue("own")
    return found


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of the tests' own."""
    try:
        made = Broker.started(tmp_path_factory.mktemp("kafka"))
    except JarsMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"{error}, or running brokers named by {NAMED}")
    yield made
    made.stop()
