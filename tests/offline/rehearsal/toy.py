"""Small Pulumi programs on the one CPU pool of stack `local`, to rehearse in place of the real one.

As a script it rehearses one of them: ``python -m tests.offline.rehearsal.toy FOLDER PROGRAM``.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from rich.console import Console

from infra.kubernetes.labels import INPUTS_ANNOTATION, NAME, RESULTS_ANNOTATION, RUN_ANNOTATION, VARIANT_ANNOTATION
from infra.pipelines.results import RESULTS, Result
from offline.rehearsal.outcome import Options, Outcome
from offline.rehearsal.session import Session, configure

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = "local"
NAMESPACE = "toys"

TRAINING = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
done = pathlib.Path(sys.argv[1], "epochs")
start = int(done.read_text()) if done.exists() else 0
print("starting after", start, flush=True)
for epoch in range(start + 1, 13):
    time.sleep(float(sys.argv[2]))
    done.with_suffix(".new").write_text(str(epoch))
    done.with_suffix(".new").replace(done)
    print(f"Epoch {epoch}/12", flush=True)
"""


class Toys:
    """Declares a provider and a namespace, and then Jobs in it."""

    def __init__(self, labels: dict[str, str] | None = None) -> None:
        self.provider = k8s.Provider(CLUSTER, kubeconfig="nowhere")
        self.namespace = k8s.core.v1.Namespace(
            "namespace", metadata=k8s.meta.v1.ObjectMetaArgs(name=NAMESPACE, labels=labels), opts=self.options()
        )
        self.claim = k8s.core.v1.PersistentVolumeClaim(
            "store",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="store", namespace=NAMESPACE),
            opts=self.options([self.namespace]),
        )

    def options(self, after: Sequence[pulumi.Resource] = ()) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(provider=self.provider, depends_on=list(after))

    def job(
        self,
        name: str,
        script: str,
        *arguments: str,
        after: Sequence[pulumi.Resource] = (),
        replace_with: Sequence[pulumi.Resource] = (),
        cpu: str = "100m",
        memory: str | None = None,
        selector: dict[str, str] | None = None,
        gpus: int = 0,
        backoff_limit: int = 0,
        deadline: int | None = None,
        grace: int = 5,
        rules: Sequence[k8s.batch.v1.PodFailurePolicyRuleArgs] = (),
        replace_unready: bool = True,
        service_account: str | None = None,
        env: Sequence[k8s.core.v1.EnvVarArgs] = (),
        volumes: Sequence[k8s.core.v1.VolumeArgs] = (),
        mounts: Sequence[k8s.core.v1.VolumeMountArgs] = (),
        init: Sequence[k8s.core.v1.ContainerArgs] = (),
        pipeline: str | None = None,
        run: str | None = None,
        inputs: Mapping[str, str] | None = None,
        results: Sequence[Result] = (),
        variant: Mapping[str, Any] | None = None,
    ) -> k8s.batch.v1.Job:
        """A Job that runs ``python -c script arguments…`` with the store at /store.

        ``run`` is its directory in the store, ``inputs`` are those that it reads, ``results`` what it declares,
        ``variant`` what of the step that several Jobs are made of.
        """
        requests = {"cpu": cpu, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        annotations = {"pulumi.com/replaceUnready": "true"} if replace_unready else {}
        annotations |= {RUN_ANNOTATION: run} if run else {}
        annotations |= {INPUTS_ANNOTATION: json.dumps(inputs)} if inputs else {}
        annotations |= {RESULTS_ANNOTATION: RESULTS.dump_json(tuple(results)).decode()} if results else {}
        annotations |= {VARIANT_ANNOTATION: json.dumps(variant)} if variant else {}
        claim = k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name="store")
        return k8s.batch.v1.Job(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=name,
                namespace=NAMESPACE,
                annotations=annotations,
                labels={NAME: pipeline} if pipeline else None,
            ),
            spec=k8s.batch.v1.JobSpecArgs(
                backoff_limit=backoff_limit,
                active_deadline_seconds=deadline,
                pod_failure_policy=k8s.batch.v1.PodFailurePolicyArgs(rules=list(rules)) if rules else None,
                template=k8s.core.v1.PodTemplateSpecArgs(
                    spec=k8s.core.v1.PodSpecArgs(
                        restart_policy="Never",
                        termination_grace_period_seconds=grace,
                        service_account_name=service_account,
                        node_selector=selector,
                        init_containers=list(init) or None,
                        containers=[
                            k8s.core.v1.ContainerArgs(
                                name="main",
                                command=["python", "-c", script],
                                args=list(arguments),
                                env=list(env),
                                resources=k8s.core.v1.ResourceRequirementsArgs(
                                    requests=requests, limits={"memory": memory} if memory else None
                                ),
                                volume_mounts=[
                                    k8s.core.v1.VolumeMountArgs(name="store", mount_path="/store"),
                                    *mounts,
                                ],
                            )
                        ],
                        volumes=[
                            k8s.core.v1.VolumeArgs(name="store", persistent_volume_claim=claim),
                            *volumes,
                        ],
                    )
                ),
            ),
            opts=pulumi.ResourceOptions.merge(
                self.options([self.namespace, self.claim, *after]),
                pulumi.ResourceOptions(replace_with=list(replace_with)),
            ),
        )


def ignore_disruption() -> k8s.batch.v1.PodFailurePolicyRuleArgs:
    return k8s.batch.v1.PodFailurePolicyRuleArgs(
        action="Ignore",
        on_pod_conditions=[
            k8s.batch.v1.PodFailurePolicyOnPodConditionsPatternArgs(type="DisruptionTarget", status="True")
        ],
    )


def on_exit_code(action: str, code: int) -> k8s.batch.v1.PodFailurePolicyRuleArgs:
    return k8s.batch.v1.PodFailurePolicyRuleArgs(
        action=action,
        on_exit_codes=k8s.batch.v1.PodFailurePolicyOnExitCodesRequirementArgs(operator="In", values=[code]),
    )


def training() -> None:
    """A slow training, a child process of its own, and a Job after it."""
    toys = Toys()
    child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    train = toys.job("toy-train", child + TRAINING, "/store", "0.15", rules=[ignore_disruption()])
    toys.job("toy-predict", "import sys; print(open(sys.argv[1]).read())", "/store/epochs", after=[train])


def stubborn() -> None:
    """A Job that does not end when it is asked to."""
    script = "import sys, time; open(sys.argv[1], 'w').write('1'); time.sleep(600)"
    Toys().job("stubborn", script, "/store/epochs", grace=300)


def rehearse(
    program: Callable[[], object], folder: Path, *, fresh: bool = False, disrupt: str | None = None
) -> tuple[Outcome, str]:
    """Rehearses ``program``; returns the outcome and what was printed."""
    console = Console(record=True, file=sys.stderr, width=200, highlight=False)
    options = Options("local", ROOT, folder, fresh=fresh, disrupt=disrupt)
    outcome = Session(program, configure("local", ROOT), options, console).run()
    return outcome, console.export_text()


if __name__ == "__main__":
    sys.exit(rehearse(globals()[sys.argv[2]], Path(sys.argv[1]))[0].exit_code)
