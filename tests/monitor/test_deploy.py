"""The alert rules and the dashboard ask for metrics that there are, and the docs have them all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.monitor.web.routes import Routes
from penstock.tracker import ConsumerStatus, KeptStream
from tests.bounds import HANG_S
from tests.monitor.asking import get, open_access, text
from tests.monitor.feeding import START_MS, Program

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus-rules.yml"
DOCS = DEPLOY.parent / "docs" / "monitoring.md"
DASHBOARD = DEPLOY / "grafana-dashboard.json"

ALERTS = {
    *(
        "PenstockNoData",
        "PenstockFallingBehind",
        "PenstockQueryBehind",
        "PenstockBatchesFail",
        "PenstockReceiverDown",
    ),
    *("PenstockReceiverRestarts", "PenstockLogNearlyFull", "PenstockRecordsDiscarded"),
    "PenstockBlocksLost",
}


@pytest.fixture(scope="module")
def samples() -> dict[str, set[str]]:
    """The names of all samples, with the names of their labels."""
    program = Program()
    program.start()
    program.receiver(limit=5.0)
    program.batch(1)
    query = ConsumerStatus("c4ff9a50", 5, 1_200, True, START_MS)
    program.kept[0] = KeptStream(0, "epoch", 3, 9, 12_345, 5 << 20, (query,))
    program.second(10, rate_s=0.5)
    answer = Routes(program.model, open_access()).answer(get("/metrics"))
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text(answer) + "\n"):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def check_expression(expression: str, samples: dict[str, set[str]]) -> None:
    named = re.findall(r"(penstock_\w+)(?:\{([^}]*)\})?", expression)
    assert named, expression
    for name, labels in named:
        assert name in samples, expression
        asked = set(re.findall(r"(\w+)\s*[=!]", labels))
        assert asked <= samples[name] | {"job", "instance"}, expression


def test_alerts_ask_for_metrics_that_there_are(samples: dict[str, set[str]]) -> None:
    rules = RULES.read_text()
    assert set(re.findall(r"- alert: (\w+)", rules)) == ALERTS
    expressions = re.findall(r"expr: (.*)", rules)
    assert len(expressions) == len(ALERTS)
    for expression in expressions:
        check_expression(expression, samples)


def test_the_dashboard_asks_for_metrics_that_there_are(samples: dict[str, set[str]]) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert len(dashboard["panels"]) == 14
    for panel in dashboard["panels"]:
        assert panel["targets"]
        for target in panel["targets"]:
            check_expression(target["expr"], samples)
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                names = re.findall(r"penstock_\w+", target["expr"])
                assert any(label in samples[name] for name in names), target
    for variable in dashboard["templating"]["list"][1:]:
        (name,) = re.findall(r"penstock_\w+", variable["definition"])
        assert name in samples


def test_the_docs_have_all_metrics_that_there_are(samples: dict[str, set[str]]) -> None:
    found = re.findall(r"`(penstock_\w+|…_\w+)(?:\{[^`]*\})?`", DOCS.read_text())
    # Of several in a row that begin alike, the first has the beginning.
    for name in samples:
        name = re.sub(r"_seconds_(bucket|sum|count)$", "_seconds", name)
        begins = any(name.startswith(each.rpartition("_")[0]) for each in found)
        ends = any(each[0] == "…" and name.endswith(each[1:]) for each in found)
        assert name in found or (begins and ends), name


@pytest.mark.skipif(shutil.which("promtool") is None, reason="platform: promtool is not installed")
def test_promtool_tests_the_alerts() -> None:
    tested = subprocess.run(
        ["promtool", "test", "rules", "prometheus-rules-test.yml"],
        cwd=DEPLOY,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
