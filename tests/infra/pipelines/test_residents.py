"""What stays on pools, as all that asks for it counts it."""

from dataclasses import replace

from slipway.infra.pipelines.apps import AppDeclaration, AppSettings, Autoscale
from slipway.infra.pipelines.contract import ServiceDeclaration, ServiceSettings
from slipway.infra.pipelines.residents import residents, residents_on
from slipway.infra.platform import RequestRules, Resources
from tests.support.stand_in import cpu_pool

QUEUE = ServiceDeclaration(
    "queue",
    "example/valkey",
    [],
    6379,
    ServiceSettings(pool="cpu", cpu="500m", memory="1Gi", ephemeral_storage="1Gi"),
)
PAGE = AppDeclaration(
    "page",
    "A page",
    AppSettings(
        pool="web", cpu="1", memory="2Gi", ephemeral_storage="1Gi", replicas=2, autoscale=Autoscale(most=5)
    ),
    8080,
    [],
)


def test_an_autoscaled_app_takes_the_least_and_the_most_of_its_pods() -> None:
    (page,) = residents("digits", [], [PAGE])
    assert (page.kind, page.pool, page.object_name) == ("app", "web", "digits-page")
    assert (page.least.cpu, page.most.cpu) == (2000, 5000)
    assert (page.least.memory, page.most.memory) == (2 * 2048, 5 * 2048)


def test_a_pool_counts_what_its_cluster_makes_of_requests() -> None:
    pool = replace(cpu_pool(), requests=RequestRules(Resources(cpu=50, memory=52, ephemeral_storage=10), step=250))
    on_pool = residents_on(residents("digits", [QUEUE], [PAGE]), pool)
    assert [(resident.kind, resident.most.cpu, resident.most.memory) for resident in on_pool] == [
        ("service", 500, 1024),
    ]
