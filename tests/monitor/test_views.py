"""What Prometheus and probes are told."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.monitor.web.routes import Routes
from penstock.monitor.web.server import listen_host, ports_near
from tests.bounds import HANG_S
from tests.monitor.asking import get, open_access, text
from tests.monitor.feeding import Program


def scrape(program: Program) -> str:
    answer = Routes(program.model, open_access()).answer(get("/metrics"))
    assert answer.status == 200
    assert answer.kind.startswith("text/plain")
    return text(answer) + "\n"


def running() -> Program:
    program = Program()
    program.start()
    program.receiver(limit=8000.0, source="estimator")
    program.batch(1, takes_ms=300)
    program.batch(2, takes_ms=1400, errors=("bad",))
    program.batch(3, waits_ms=-1)
    program.second(8000, rate_s=0.9, busy_s=0.1, source_lag=700, source_lag_ms=2500)
    return program


def test_prometheus_reads_what_the_model_has() -> None:
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(scrape(running()))
        for sample in family.samples
    }

    def value(name: str, **labels: str) -> float:
        return samples[f"penstock_{name}", frozenset(labels.items())]

    def of_stream(name: str, **labels: str) -> float:
        return value(name, stream="numbers", stream_id="0", **labels)

    assert value("batches_completed_total") == 2
    assert value("batches_failed_total") == 1
    assert value("batches", state="waiting") == 1
    assert of_stream("receiver_up") == 1
    assert of_stream("received_records_total") == 12_345
    assert of_stream("receiver_wait_ratio", **{"for": "tokens"}) == pytest.approx(0.9)
    assert of_stream("rate_limit_records_per_second", by="estimator") == 8000
    assert of_stream("rate_records_per_second") == 8000
    assert of_stream("log_free_bytes") == 1 << 30
    assert of_stream("source_lag_records") == 700
    assert of_stream("source_lag_seconds") == 2.5
    assert value("batch_processing_time_seconds_bucket", le="0.5") == 1
    assert value("batch_processing_time_seconds_bucket", le="+Inf") == 2
    assert value("batch_processing_time_seconds_sum") == pytest.approx(1.7)


def test_before_the_start_there_is_no_time_of_it() -> None:
    told = scrape(Program())
    assert "penstock_application_info{" in told
    assert "\npenstock_start_time_seconds " not in told


def test_a_name_cannot_break_out_of_its_label() -> None:
    program = Program(streams={0: 'x"} 1\nevil_metric 1'})
    program.start()
    program.receiver()
    program.second(10)
    names = {family.name for family in text_string_to_metric_families(scrape(program))}
    assert "evil_metric" not in names
    assert "penstock_receiver_up" in names


def test_names_of_files_that_are_no_text_can_be_told() -> None:
    program = Program(streams={0: "access\udcff.log"})
    program.start()
    program.receiver(state="stopped", error="no such file: 'access\udcff.log'")
    program.model.tick()
    assert "access\\\\udcff.log" in scrape(program)
    unready = Routes(program.model, open_access()).answer(get("/health/ready"))
    assert (unready.status, "no such file: 'access\\udcff.log'" in text(unready)) == (503, True)


def test_every_metric_says_what_it_is_and_has_the_prefix() -> None:
    text = scrape(running())
    families = list(text_string_to_metric_families(text))
    assert len(families) > 15
    for family in families:
        assert family.name.startswith("penstock_")
        assert family.documentation


def test_metrics_are_text_also_for_who_would_like_open_metrics_better() -> None:
    wanted = "application/openmetrics-text; version=1.0.0, text/plain; version=0.0.4; q=0.5"
    answer = Routes(running().model, open_access()).answer(get("/metrics", Accept=wanted))
    assert answer.kind == "text/plain; version=0.0.4; charset=utf-8"
    assert list(text_string_to_metric_families(text(answer)))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="platform: promtool is not installed")
def test_promtool_finds_nothing_wrong_with_them() -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=scrape(running()),
        text=True,
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_it_is_not_ready_between_two_failures_of_a_receiver_that_fails_again_and_again() -> None:
    program = Program()
    door = Routes(program.model, open_access())
    program.start()
    for failures in range(4):
        program.receiver(error="broker is gone")
        program.second()
        found = door.answer(get("/health/ready"))
        assert found.status == (503 if failures == 3 else 200)
        program.receiver(state="stopped", error="broker is gone")
    assert text(found) == "numbers-0 stopped 3 times in the last ten minutes (broker is gone)"


def test_ready_says_why_not() -> None:
    program = Program()
    door = Routes(program.model, open_access())
    assert text(door.answer(get("/health/ready"))) == "the streams have not started"
    program.start()
    program.receiver()
    program.second()
    assert (door.answer(get("/health/ready")).status) == 200
    program.receiver(state="stopped", error="lost\nmore")
    for number in range(3):
        program.batch(number, waits_ms=-1)
    program.clock.advance(60_000)
    program.model.tick()
    found = door.answer(get("/health/ready"))
    assert found.status == 503
    assert text(found).splitlines() == [
        "numbers-0 does not run: lost",
        "3 batches wait",
        "no batch was complete for 61 s, and 3 wait",
    ]
    assert door.answer(get("/health/live")).status == 200


def test_where_it_listens_follows_spark() -> None:
    yarn = {"spark.master": "yarn", "spark.driver.host": "d"}
    bound = {**yarn, "spark.driver.bindAddress": "10.1.1.1"}
    local = {"spark.master": "local[4]", "spark.driver.host": "d"}
    assert listen_host("::", bound, {}) == "::"
    assert listen_host(None, bound, {}) == "10.1.1.1"
    assert listen_host(None, yarn, {"SPARK_LOCAL_IP": "10.2.2.2"}) == "10.2.2.2"
    assert listen_host(None, yarn, {}) == "d"
    assert listen_host(None, local, {}) == "127.0.0.1"
    assert list(ports_near(4140)) == [*range(4140, 4157), 0]
    assert list(ports_near(65_530)) == [*range(65_530, 65_536), 0]
    assert list(ports_near(0)) == [0]
