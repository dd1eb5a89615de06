"""A real Prometheus scrapes the metrics and reads the alert rules."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.monitor.web.routes import Routes
from tests.bounds import HANG_S
from tests.monitor import asking
from tests.monitor.asking import open_access, serving
from tests.monitor.feeding import Program
from tests.services.prometheus import Prometheus, PrometheusMissingError

RULES = Path(__file__).parents[2] / "deploy" / "prometheus-rules.yml"
until = partial(asking.until, bound_s=HANG_S)


@pytest.fixture
def routes() -> Routes:
    program = Program()
    program.start()
    program.receiver(limit=5.0)
    program.batch(1)
    program.second(10, rate_s=0.5)
    return Routes(program.model, open_access())


@pytest.mark.long
@pytest.mark.slow
def test_prometheus_scrapes_them_and_reads_the_rules(tmp_path: Path, routes: Routes) -> None:
    with serving(routes.answer) as server:
        try:
            prometheus = Prometheus(tmp_path, f"127.0.0.1:{server.port}", RULES)
        except PrometheusMissingError as error:
            pytest.skip(f"platform: {error}")
        try:

            def value(of: str) -> Any:
                found = prometheus.ask("query", query=of)["result"]
                return [series["value"][1] for series in found]

            assert until(lambda: value('up{job="penstock"}') == ["1"] or None)
            assert until(lambda: value("penstock_batches_completed_total")) == ["1"]
            (target,) = prometheus.ask("targets")["activeTargets"]
            assert (target["health"], target["lastError"]) == ("up", "")
            groups = until(lambda: prometheus.ask("rules")["groups"])
            rules = until(
                lambda: [
                    rule
                    for group in prometheus.ask("rules")["groups"]
                    for rule in group["rules"]
                    if rule["health"] != "unknown"
                ]
            )
            assert groups
            assert {rule["health"] for rule in rules} == {"ok"}
        finally:
            prometheus.stop()
