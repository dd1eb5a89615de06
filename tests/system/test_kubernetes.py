"""`deploy/kubernetes`: by the schemas of Kubernetes, and the container of the driver as a process.

There is no cluster here. The command, the environment and the files of the driver's container run
on this host instead, with a local master and versitygw for S3, and are asked what its probes ask.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from penstock.settings import Settings
from tests.bounds import HANG_S
from tests.services.ports import free_ports
from tests.services.versitygw import VersityServer, make_server
from tests.system.leftovers import MARK, await_that, marked_processes

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
FILES = [*KUSTOMIZATION["resources"], "executor.yaml"]
APP = "/opt/app/app.py"


def documents(*names: str) -> list[dict[str, Any]]:
    return [doc for name in names for doc in yaml.safe_load_all((FOLDER / name).read_text())]


def one(kind: str, name: str) -> dict[str, Any]:
    found = [doc for doc in documents(*FILES) if doc["kind"] == kind]
    (named,) = [doc for doc in found if doc["metadata"].get("name", "") == name]
    return named


DRIVER = one("Deployment", "records-driver")["spec"]["template"]
EXECUTOR = one("Pod", "")
CONTAINER = DRIVER["spec"]["containers"][0]
SPARK = dict(
    line.split(maxsplit=1)
    for line in (FOLDER / "spark-defaults.conf").read_text().splitlines()
    if line and not line.startswith("#")
)


def validate(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


# -- the manifests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_manifest_is_what_kubernetes_takes(name: str) -> None:
    for document in documents(name):
        if document["kind"] == "Pod":
            # What Spark fills in.
            document = copy.deepcopy(document)
            document["metadata"]["name"] = "records-exec-1"
        validate(document)


def test_a_wrong_field_is_noticed() -> None:
    for path, value in (
        (("spec", "template", "spec", "serviceAcountName"), "records-driver"),
        (("spec", "replicas"), "one"),
        (("spec", "template", "spec", "containers", 0, "livenessProbe", "httpGet", "url"), "/"),
    ):
        document = copy.deepcopy(one("Deployment", "records-driver"))
        at: Any = document
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        with pytest.raises(kubernetes_validate.ValidationError):
            validate(document)


def test_all_files_are_named_and_names_lead_to_something() -> None:
    generated = {made["name"]: made for made in KUSTOMIZATION["configMapGenerator"]}
    named = {*FILES, "kustomization.yaml", "app.py", "Dockerfile"}
    for made in generated.values():
        named.update(made.get("files", ()))
    assert named == {path.name for path in FOLDER.iterdir() if path.is_file()}
    # What kustomize does not read names what it makes by the name that is written there.
    assert generated["records-storage"]["options"] == {"disableNameSuffixHash": True}
    for container in (CONTAINER, EXECUTOR["spec"]["containers"][0]):
        (maps,) = [
            found["configMapRef"] for found in container["envFrom"] if "configMapRef" in found
        ]
        assert maps["name"] in generated
    for pod in (DRIVER, EXECUTOR):
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for mount in pod["spec"]["containers"][0]["volumeMounts"]:
            assert mount["name"] in volumes
    assert DRIVER["spec"]["volumes"][0]["configMap"]["name"] in generated
    accounts = {doc["metadata"]["name"] for doc in documents("accounts.yaml")}
    assert DRIVER["spec"]["serviceAccountName"] in accounts
    assert SPARK["spark.kubernetes.authenticate.executor.serviceAccountName"] in accounts
    assert SPARK["spark.kubernetes.container.image"] == CONTAINER["image"]
    template = Path(SPARK["spark.kubernetes.executor.podTemplateFile"])
    assert str(template.parent) == CONTAINER["volumeMounts"][0]["mountPath"]
    assert template.name in generated["records-config"]["files"]
    (executor,) = [found["name"] for found in EXECUTOR["spec"]["containers"]]
    assert executor == SPARK["spark.kubernetes.executor.podTemplateContainerName"]
    for service, pod in (("records", EXECUTOR), ("records-driver", DRIVER)):
        selector = one("Service", service)["spec"]["selector"]
        assert selector.items() <= pod["metadata"]["labels"].items()


def test_ports_memory_and_times_fit_the_settings() -> None:
    settings = Settings.from_pairs(SPARK.items())
    (page,) = CONTAINER["ports"]
    assert page["containerPort"] == settings.ui_port
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert CONTAINER[probe]["httpGet"]["port"] == page["name"]
    assert settings.ui_host == "0.0.0.0"
    grace_s = DRIVER["spec"]["terminationGracePeriodSeconds"]
    assert grace_s >= settings.graceful_stop_timeout_ms / 1000 + 30
    program = (FOLDER / "app.py").read_text()
    (port,) = one("Service", "records")["spec"]["ports"]
    probe = EXECUTOR["spec"]["containers"][0]["readinessProbe"]["httpGet"]
    assert f'HttpReceiver({port["targetPort"]}, host="0.0.0.0", path="{probe["path"]}")' in program
    assert probe["port"] == port["targetPort"]
    limit = EXECUTOR["spec"]["volumes"][0]["emptyDir"]["sizeLimit"]
    assert limit == "1Gi"
    assert settings.memory_bytes < 1 << 30
    overhead = re.fullmatch(r"(\d+)m", SPARK["spark.executor.memoryOverhead"])
    assert overhead is not None
    assert int(overhead[1]) >= 1024


# -- the driver's container ------------------------------------------------------------------------


class Container:
    """The driver's container as a process, whose disk is empty.

    Args:
        folder: Its disk.
        ports: Free ports, for those of the manifests.
        more: What the cluster gives besides: keys, an endpoint.
    """

    def __init__(self, folder: Path, ports: dict[str, int], more: dict[str, str]) -> None:
        folder.mkdir()
        self._ports = ports
        self.mark = uuid.uuid4().hex
        config = folder / "records"
        config.mkdir()
        mounted = CONTAINER["volumeMounts"][0]["mountPath"]
        for made in KUSTOMIZATION["configMapGenerator"]:
            for name in made.get("files", ()):
                (config / name).write_text(self.here((FOLDER / name).read_text()))
        (folder / "app.py").write_text(self.here((FOLDER / "app.py").read_text()))
        given = dict(
            text.split("=", 1)
            for made in KUSTOMIZATION["configMapGenerator"]
            for text in made.get("literals", ())
        )
        fields = {
            "status.podIP": "127.0.0.1",
            "metadata.name": "records-driver-0",
            "metadata.namespace": KUSTOMIZATION["namespace"],
        }
        for entry in CONTAINER["env"]:
            text = entry.get("value")
            if text is None:
                text = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            text = re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], text)
            given[entry["name"]] = text.replace(mounted, str(config))
        # The one thing that is not the cluster's: where tasks run.
        given["PYSPARK_SUBMIT_ARGS"] = f"--master local[3] {given['PYSPARK_SUBMIT_ARGS']}"
        kept = ("PATH", "HOME", "LANG", "JAVA_HOME")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        path = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
        environment |= {"PATH": path, "PYSPARK_PYTHON": sys.executable, "TMPDIR": str(folder)}
        environment |= {"PYTHONPATH": str(FOLDER.parents[1]), "SPARK_LOCAL_DIRS": str(folder)}
        command = [text.replace(APP, str(folder / "app.py")) for text in CONTAINER["args"]]
        self._said = folder / "stdout"
        with open(self._said, "wb") as said:
            self.process = subprocess.Popen(
                command,
                env={**environment, **given, **more, MARK: self.mark},
                cwd=folder,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def here(self, text: str) -> str:
        """Put free ports for those of the manifests."""
        for given, port in self._ports.items():
            text = re.sub(rf"\b{given}\b", str(port), text)
        return text

    def probe(self, name: str) -> tuple[int, str]:
        """Ask as the kubelet does; 0 where nothing answers."""
        asked = CONTAINER[name]["httpGet"]
        (port,) = [port for port in CONTAINER["ports"] if port["name"] == asked["port"]]
        return self.ask("GET", port["containerPort"], asked["path"])

    def ask(self, method: str, port: int, path: str, **more: Any) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[str(port)], timeout=60)
        try:
            connection.request(method, path, **more)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def report(self) -> str:
        return self._said.read_text()[-5000:]

    def counts(self) -> dict[str, int]:
        """Return how many records each batch had, by its time, as the program prints them."""
        lines = self._said.read_text().splitlines()
        found = {}
        for at, line in enumerate(lines):
            if line.startswith("Time: ") and at + 2 < len(lines) and lines[at + 2].isdigit():
                found[line] = int(lines[at + 2])
        return found

    def kill(self) -> None:
        """Kill its processes by SIGKILL, as the end of a container does."""
        for pid in marked_processes(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(HANG_S)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[VersityServer]:
    made = make_server(tmp_path / "store")
    made.command.insert(1, "--region=eu-central-1")
    (made.data / "bucket").mkdir()
    made.start()
    yield made
    made.stop()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_goes_on_in_another_container_with_an_empty_disk(
    tmp_path: Path, server: VersityServer
) -> None:
    ports = dict(zip(("4140", "8080"), free_ports(2), strict=True))
    more = server.environment()
    del more["AWS_REGION"]
    counts: list[dict[str, int]] = []
    for number in range(2):
        disk = tmp_path / f"disk-{number}"
        container = Container(disk, ports, more)
        try:
            await_that(
                "the startup probe",
                lambda probed=container: probed.probe("startupProbe")[0] == 200,
                HANG_S,
                container.report,
            )
            await_that(
                "readiness",
                lambda probed=container: probed.probe("readinessProbe")[0] == 200,
                HANG_S,
                container.report,
            )
            for record in range(40):
                send(container, f"{number}-{record}")
            if number:
                await_that(
                    "all is processed",
                    lambda last=container: sum({**counts[0], **last.counts()}.values()) == 80,
                    HANG_S,
                    container.report,
                )
                # As a kubelet that ends a pod: within the grace period it ends by itself.
                container.process.send_signal(signal.SIGTERM)
                container.process.wait(DRIVER["spec"]["terminationGracePeriodSeconds"])
            else:
                assert container.probe("livenessProbe")[0] == 200
        finally:
            container.kill()
        counts.append(container.counts())
        shutil.rmtree(disk)
    assert sum({**counts[0], **counts[1]}.values()) == 80
    both = counts[0].keys() & counts[1].keys()
    assert all(counts[0][batch] == counts[1][batch] for batch in both)


def send(container: Container, record: str) -> None:
    """Send a record until it was taken, as a sender with a key of its own does."""
    headers = {"Idempotency-Key": record}
    end_s = time.monotonic() + HANG_S
    while (
        status := container.ask("POST", 8080, "/records", body=record, headers=headers)[0]
    ) != 200:
        assert time.monotonic() < end_s, (status, container.report())
        time.sleep(0.1)
