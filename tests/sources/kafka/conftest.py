"""One broker for the session; it is started again by tests that kill it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.services.jars import JarsMissingError
from tests.services.kafka import Broker


@pytest.fixture(params=["kafka-python", "confluent-kafka"])
def broker(started: Broker, request: pytest.FixtureRequest) -> Broker:
    """The broker, read by each of the clients."""
    started.engine = request.param
    return started


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        made = Broker(tmp_path_factory.mktemp("kafka"))
    except JarsMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    made.start()
    yield made
    made.stop()
