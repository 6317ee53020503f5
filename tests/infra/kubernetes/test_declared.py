"""All objects of small pipelines on a cluster that no cloud knows: `declared.txt` has them, as differences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pulumi
import pytest

from slipway.infra import places
from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.service import services_of
from slipway.infra.pipelines.contract import Probe
from slipway.infra.placed import Step
from slipway.infra.platform import DevicePlugin, Egress, Platform, Resources, Taint
from tests.infra.kubernetes.services import FILES, days, queue
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.snapshots import compare, declared, difference
from tests.support.stand_in import GPU_TAINT, cpu_pool, gpu_pool, platform, step
from tests.support.tree import write_tree

FILE = Path(__file__).with_name("declared.txt")
CODE = {f"work/{name}.py": "" for name in ("train", "predict", "report")} | FILES
RUNTIME = [path.relative_to(ROOT).as_posix() for path in (ROOT / "slipway").rglob("*.py")]
GPUS = Resources(cpu=1500, memory=4096, ephemeral_storage=1024, gpus=1)
SPOT = [GPU_TAINT, Taint("spot", "true", "NoExecute")]

Steps = Sequence[Step]


def nothing(here: Platform, root: Path) -> Steps:
    del here, root
    return []


def chain(here: Platform, root: Path) -> Steps:
    """prepare → train → predict, with a report and steps that share memory beside them."""
    del root
    prepare, report = step(here, name="prepare"), step(here, name="report", uses_store=False, arguments=[])
    train = step(here, "gpu", inputs={"prepare": prepare}, after=[report], resources=GPUS)
    wide = {"arguments": ["$(HOME)", "{{braces}}"], "resources": replace(GPUS, gpus=0), "shm": 512}
    return [step(here, name="predict", inputs={"train": train}, **wide), replace(train, name="again", shm=1024)]


def guarded(here: Platform, root: Path) -> Steps:
    del root
    gates = Gates("image")
    names = {"cpu": "prepare", "gpu": "train"}
    return [
        gates.guard(
            step(here, pool, name=names[pool], uses_store=False, resources=replace(GPUS, gpus=pool == "gpu"))
        )
        for pool in names
        if pool in here.pools
    ]


def client(here: Platform, root: Path) -> Steps:
    return [days(here, root, queue(here))]


def client_of_another(here: Platform, root: Path) -> Steps:
    return [
        days(here, root, queue(here, probe=Probe("/health"), storage=2048, resources=Resources(1000, 2048, 512)))
    ]


def brought(*pools: str) -> Platform:
    """A cluster whose pools are declared in the same stack."""
    made = {name: [pulumi.CustomResource("test:index:NodePool", name)] for name in pools}
    ready = [pulumi.CustomResource("test:index:Identity", "identity")]
    return platform(replace(cpu_pool(), resources=made["cpu"]), gpu_pool(resources=made["gpu"]), ready=ready)


def plugged(openshift: bool = False) -> Platform:
    pools = [
        cpu_pool(),
        replace(gpu_pool(), gpu_clients=4),
        replace(gpu_pool("big", taints=SPOT), mig_strategy="single"),
    ]
    return replace(platform(*pools), device_plugin=DevicePlugin(openshift))


def standing() -> Platform:
    return replace(platform(), creates_namespace=False)


def fast() -> Platform:
    return replace(platform(), volume_class="fast")


def unclaimed() -> Platform:
    return replace(made := platform(), store=replace(made.store, claim=None))


@dataclass(frozen=True)
class Case:
    here: Callable[[], Platform] = platform
    steps: Callable[[Platform, Path], Steps] = nothing
    egress: Sequence[Egress] | None = ()
    protect: bool = False
    preview: bool = False
    beside: str = "nothing"
    """The case that the difference is shown to."""


CASES: Mapping[str, Case] = {
    "nothing": Case(),
    "protected": Case(protect=True),
    "open": Case(egress=None),
    "to a network": Case(egress=(Egress("10.20.0.0/16", (443, 8443)),)),
    "a namespace that is there": Case(
        lambda: replace(platform(), creates_namespace=False), client, protect=True, beside="a service"
    ),
    "no claim": Case(unclaimed),
    "many GPUs": Case(lambda: platform(cpu_pool(max_nodes=2), gpu_pool(gpus=4))),
    "pools of the stack": Case(lambda: brought("cpu", "gpu"), chain, beside="steps"),
    "no GPUs": Case(lambda: replace(platform(cpu_pool()), device_plugin=DevicePlugin()), guarded),
    "a device plugin": Case(plugged, guarded),
    "a device plugin of OpenShift": Case(lambda: plugged(openshift=True)),
    "steps": Case(steps=chain),
    "steps with taints": Case(lambda: platform(cpu_pool(), gpu_pool(taints=SPOT)), chain, beside="steps"),
    "a service": Case(steps=client),
    "another service": Case(
        lambda: replace(platform(), volume_class="fast"), client_of_another, beside="a service"
    ),
    "a service in the open": Case(steps=client, egress=None, beside="a service"),
    "a service in a preview": Case(steps=client, preview=True, beside="a service"),
    "users of the cluster": Case(lambda: replace(platform(), pod_user=None), client, beside="a service"),
}


def run(case: Case, root: Path) -> Recording:
    def program() -> None:
        here = case.here()
        steps = list(case.steps(here, root))
        count = len(services_of(steps))
        arguments = WorkspaceArgs(here, "digits", "runner", case.protect, case.egress, count)
        declare(steps, {here.name: Workspace("here", arguments)}, root)

    return record(program, {}, preview=case.preview)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, and a package in which every module is empty: what they say is not what is held here."""
    return write_tree(tmp_path_factory.mktemp("root"), dict.fromkeys(RUNTIME, "") | CODE)


@pytest.mark.parametrize("case", CASES)
def test_it_is_declared_as_before(case: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LIBRARY", root)
    beside = declared(run(CASES[CASES[case].beside], root)) if case != "nothing" else {}
    compare(FILE, case, difference(beside, declared(run(CASES[case], root))))
