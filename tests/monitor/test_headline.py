"""What the headline of real programs says that go on, but not well."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from pyspark import RDD, SparkContext

from penstock.monitor.cli import AppClient
from penstock.monitor.registry import registered, runtime_folder
from penstock.receiver import Receiver, ReceiverContext, receiver
from penstock.streaming import StreamingContext
from tests.monitor.asking import until

pytestmark = pytest.mark.slow

BOUND_S = 90.0


@receiver
def good(ctx: ReceiverContext) -> Iterator[str]:
    while not ctx.stopped.wait(0.05):
        yield "record"


@receiver
def failing(ctx: ReceiverContext) -> Iterator[str]:
    yield "record"
    raise ConnectionError("broker 10.0.0.7 is gone")


class Discarding(Receiver):
    """Discards every second record."""

    def onStart(self) -> None:
        threading.Thread(target=self._receive, name="discarding", daemon=True).start()

    def onStop(self) -> None:
        pass

    def validate(self, record: object) -> bool:
        return int(str(record)) % 2 == 0

    def _receive(self) -> None:
        number = 0
        while not self.isStopped():
            self.store(str(number))
            number += 1
            time.sleep(0.02)


def quick(rdd: RDD[str]) -> None:
    rdd.count()


def too_slow(rdd: RDD[str]) -> None:
    rdd.count()
    time.sleep(1.5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("bad", "work", "says"),
    [
        (
            failing,
            quick,
            r"failing-1 stopped \d+ times in the last ten minutes \(.*broker 10\.0\.0\.7 is gone",
        ),
        (Discarding(), quick, r"Discarding-1 discarded \d+ records in the last five minutes"),
        (good, too_slow, r"The batches are the bottleneck: \d\.\d s of work for 1 s of batch"),
    ],
)
def test_the_headline_names_what_a_person_should_act_on(
    sc: SparkContext, bad: Receiver, work: Callable[[RDD[str]], None], says: str
) -> None:
    ssc = StreamingContext(sc, 1)
    for each in (good, bad):
        ssc.receiverStream(each).foreachRDD(work)
    ssc.start()
    try:
        apps = registered(runtime_folder(os.environ))
        (app,) = [app for app in apps if app.application_id == sc.applicationId]
        client = AppClient(app.url, app.token, app.certificate)

        def sentence() -> str:
            return str(client.get("/api/penstock/status")["sentence"])

        until(lambda: re.search(says, sentence()), BOUND_S)
        assert "nothing holds it up" not in sentence()
    finally:
        ssc.stop(stopSparkContext=False, stopGraceFully=False)
