"""A page, and a model server that is stopped while nobody uses it: the page as a process, as a pod starts it."""

from __future__ import annotations

import json

import pytest

from slipway.infra.pipelines.app_kinds.page import REQUESTS, VISITS
from slipway.infra.pipelines.apps import address_variables, start_variable
from slipway.offline.rehearsal.machine.processes import free_ports
from slipway.workloads.runtime.apps.idle import counted
from tests.support.servers.serving_stub import ServedModel, ServingStub
from tests.workloads.apps.page.conftest import until
from tests.workloads.apps.page.processes import Running, answers, process

START = "kubectl --namespace slipway scale deployment/mnist-serving --replicas=1"


def visits(page: Running) -> float:
    text = answers(f"http://127.0.0.1:{page.metrics}/metrics")
    assert text is not None
    return counted(text.decode(), REQUESTS, VISITS)


@pytest.mark.slow
def test_visits_count_and_the_page_says_how_a_stopped_server_starts_again() -> None:
    port, metrics = free_ports(2)
    with ServingStub(ServedModel()) as serving:
        (variable,) = address_variables("serving")
        environment = {variable: serving.address, start_variable("serving"): START}
        known = ["--serving-variable", variable, "--model", "digits", "--port", str(port), "--poll", "0.1"]
        with process(*known, "--metrics-port", str(metrics), environment=environment) as started:
            page = Running(port, metrics, started)
            status = f"{page.address}/api/status"
            until(lambda: b'"ready"' in (answers(status) or b""))
            assert page.healthy()
            assert answers(f"{page.address}/page.js")
            assert visits(page) == 0, "probes, and pages that are left open, are no visits"
            assert answers(page.address)
            assert visits(page) == 1
            serving.close()
            until(lambda: b'"away"' in (answers(status) or b""))
            assert START in json.loads(answers(status) or b"")["reason"]
