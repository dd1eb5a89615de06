"""A picture of the page of a running program: ``python -m tests.monitor.picture FILE [SECONDS]``.

Two receivers give records at rates that rise and fall, for so many seconds (90), and one of them is
held by a limit half the time. Then a browser looks at the page, and its picture is saved.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from penstock.monitor.registry import registered, runtime_folder
from penstock.receiver import ReceiverContext, receiver
from penstock.streaming import StreamingContext
from tests.bounds import HANG_S
from tests.services.chromium import open_browser

__all__ = ["take_picture"]

WAIT_S = HANG_S
_PERIOD_S = 40.0


@receiver
def clicks(ctx: ReceiverContext) -> Iterator[str]:
    yield from _waves(ctx, 400, 0.0)


@receiver
def orders(ctx: ReceiverContext) -> Iterator[str]:
    yield from _waves(ctx, 150, 1.0)


def _waves(ctx: ReceiverContext, most: int, phase: float) -> Iterator[str]:
    begun_s = time.monotonic()
    while not ctx.stopped.wait(0.05):
        turns = (time.monotonic() - begun_s) / _PERIOD_S + phase
        for number in range(int(most * (1.2 + math.sin(2 * math.pi * turns)) / 20)):
            yield f"record {number}"


def take_picture(sc: SparkContext, file: Path, seconds: float, folder: Path) -> str:
    """Run the program, save the picture, and return what one could read there."""
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(str(folder / "checkpoint"))
    clicked = ssc.receiverStream(clicks)
    ordered = ssc.receiverStream(orders)
    clicked.count().foreachRDD(_look)
    clicked.union(ordered).foreachRDD(_look)
    ssc.start()
    try:
        apps = registered(runtime_folder(os.environ))
        (app,) = [app for app in apps if app.application_id == sc.applicationId]
        ssc.awaitTerminationOrTimeout(seconds / 2)
        clicked.set_rate("300/second")
        ssc.awaitTerminationOrTimeout(seconds / 2)
        browser = open_browser(folder / "profile", height=1500)
        try:
            browser.get(app.url)
            WebDriverWait(browser, WAIT_S).until(
                lambda _: len(browser.find_elements(By.CSS_SELECTOR, "#charts svg")) >= 5
            )
            text = browser.find_element(By.CSS_SELECTOR, "body").text
            browser.save_screenshot(str(file))
        finally:
            browser.quit()
    finally:
        ssc.stop(stopSparkContext=False)
    return text


def _look(rdd: Any) -> None:
    rdd.count()


def main() -> None:
    file, *seconds = sys.argv[1:]
    conf = SparkConf().setMaster("local[4]").setAppName("shop").set("spark.log.level", "ERROR")
    conf.set("spark.ui.showConsoleProgress", "false").set("spark.penstock.ui.port", "0")
    sc = SparkContext(conf=conf)
    with tempfile.TemporaryDirectory() as folder:
        print(take_picture(sc, Path(file), float(seconds[0]) if seconds else 90.0, Path(folder)))
    sc.stop()


if __name__ == "__main__":
    main()
