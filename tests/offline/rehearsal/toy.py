"""Small Pulumi programs on the one CPU pool of stack `local`, to rehearse in place of the real one.

As a script it rehearses one of them: ``python -m tests.offline.rehearsal.toy FOLDER PROGRAM [NODES]``.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from rich.console import Console

from infra.kubernetes.labels import (
    APP,
    INPUTS_ANNOTATION,
    NAME,
    PEOPLE,
    RESULTS_ANNOTATION,
    RUN_ANNOTATION,
    USAGE_ANNOTATION,
    VARIANT_ANNOTATION,
)
from infra.pipelines.results import RESULTS, Result
from offline.rehearsal.demo import Demo
from offline.rehearsal.output.outcome import Options, Outcome
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


NODE = """
import os, pathlib, signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
rank, words = int(os.environ["JOB_COMPLETION_INDEX"]), sys.argv[1:]
done, pause = pathlib.Path(words[0], "epochs"), float(words[1])
hosts = [each.rsplit(":", 1) for each in words[2:]]
# Nobody else may have its address.
own = socket.create_server((hosts[rank][0], int(hosts[rank][1])))
print("there", *hosts[rank], flush=True)

def epochs():
    return int(done.read_text()) if done.exists() else 0

def together():
    others = {}
    while len(others) < len(hosts) - 1:
        connection = own.accept()[0].makefile("rwb", buffering=0)
        others[int(connection.readline())] = connection
    print("all", len(hosts), "begin after", epochs(), flush=True)
    try:
        while epochs() < 12:
            time.sleep(pause)
            for each in others.values(): each.write(b"step\\n")
            for each in others.values():
                if not each.readline(): raise OSError("one is lost")
            done.with_suffix(".new").write_text(str(epochs() + 1))
            done.with_suffix(".new").replace(done)
            print(f"Epoch {epochs()}/12", flush=True)
        for each in others.values(): each.write(b"end\\n")
        return True
    except OSError:
        return False

def with_first():
    try:
        connection = socket.create_connection((hosts[0][0], int(hosts[0][1])), 5).makefile("rwb", buffering=0)
        connection.write(f"{rank}\\n".encode())
        while word := connection.readline():
            if word == b"end\\n": return True
            connection.write(b"ok\\n")
    except OSError:
        pass
    return False

while epochs() < 12:
    if together() if rank == 0 else with_first(): break
    time.sleep(0.05)
"""
"""A training of which every pod is needed for each epoch. Those that are left wait for one that is lost."""

PASSWORD = "planted-password"

COUNTER = """
import os, pathlib, signal, socketserver, sys, threading
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
data, lock = pathlib.Path(sys.argv[3], "count"), threading.Lock()
print("counting from", data.read_text() if data.exists() else "0", flush=True)
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            password, word = line.decode().split()
            if password != sys.argv[4]:
                return
            if word == "die":
                os._exit(7)
            with lock:
                count = int(data.read_text()) + 1 if data.exists() else 1
                data.write_text(str(count))
            self.wfile.write(f"{count}\\n".encode())
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""
"""A server that counts requests in a file of its volume."""

COUNTER_ARGUMENTS = ("0.0.0.0", "6379", "/data", "$(QUEUE_PASSWORD)")

ASK = """
import os, socket, sys, time
host, port = os.environ["QUEUE_ADDRESS"].split(":")
def ask(word, tries=1):
    for left in reversed(range(tries)):
        try:
            with socket.create_connection((host, int(port)), 5) as connection:
                connection.sendall(f"{os.environ['QUEUE_PASSWORD']} {word}\\n".encode())
                return connection.makefile().readline().strip()
        except OSError:
            if not left: raise
            time.sleep(0.1)
"""
"""What its clients share."""

SITE = """
import http.server, os, pathlib, signal, sys, threading
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
said = pathlib.Path(sys.argv[2]).read_text() if len(sys.argv) > 2 else "nothing"
print("says", said, flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            os._exit(7)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(said.encode())
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("0.0.0.0" if ":" not in sys.argv[1] else sys.argv[1].split(":")[0],
    int(sys.argv[1].split(":")[-1])), Handler).serve_forever()
"""
"""A web server that says what is in a file; it ends when it is asked for ``/die``."""

SPREAD = k8s.core.v1.TopologySpreadConstraintArgs(
    max_skew=1, topology_key="kubernetes.io/hostname", when_unsatisfiable="ScheduleAnyway"
)


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
        workers: int | None = None,
        nodes: int | None = None,
        labels: Mapping[str, str] | None = None,
        job_labels: Mapping[str, str] | None = None,
        usage: str | None = None,
    ) -> k8s.batch.v1.Job:
        """A Job that runs ``python -c script arguments…`` with the store at /store.

        ``run`` is its directory in the store, ``usage`` where the use of its pods is kept there, ``inputs`` are
        those that it reads, ``results`` what it declares,
        ``variant`` what of the step that several Jobs are made of. With ``workers`` it is an Indexed Job, with
        ``nodes`` one whose pods find one another below the Service of its name and share no node.
        """
        several, labels = workers or nodes, {"toy": name, **(labels or {})}
        apart = k8s.core.v1.PodAffinityTermArgs(
            topology_key="kubernetes.io/hostname",
            label_selector=k8s.meta.v1.LabelSelectorArgs(match_labels={"toy": name}),
        )
        affinity = k8s.core.v1.AffinityArgs(
            pod_anti_affinity=k8s.core.v1.PodAntiAffinityArgs(
                required_during_scheduling_ignored_during_execution=[apart]
            )
        )
        requests = {"cpu": cpu, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        annotations = {"pulumi.com/replaceUnready": "true"} if replace_unready else {}
        annotations |= {RUN_ANNOTATION: run} if run else {}
        annotations |= {USAGE_ANNOTATION: usage} if usage else {}
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
                labels={**({NAME: pipeline} if pipeline else {}), **(job_labels or {})} or None,
            ),
            spec=k8s.batch.v1.JobSpecArgs(
                backoff_limit=backoff_limit,
                active_deadline_seconds=deadline,
                pod_failure_policy=k8s.batch.v1.PodFailurePolicyArgs(rules=list(rules)) if rules else None,
                completion_mode="Indexed" if several else None,
                completions=several,
                parallelism=several,
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels) if nodes else None,
                    spec=k8s.core.v1.PodSpecArgs(
                        affinity=affinity if nodes else None,
                        subdomain=name if nodes else None,
                        topology_spread_constraints=[SPREAD] if workers else None,
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
                    ),
                ),
            ),
            opts=pulumi.ResourceOptions.merge(
                self.options([self.namespace, self.claim, *after]),
                pulumi.ResourceOptions(replace_with=list(replace_with)),
            ),
        )

    def hosts(self, name: str, selector: Mapping[str, str] | None = None, ip: str = "None") -> k8s.core.v1.Service:
        """The headless Service of a Job with ``nodes``."""
        spec = k8s.core.v1.ServiceSpecArgs(
            cluster_ip=ip, selector=selector or {"toy": name}, publish_not_ready_addresses=True
        )
        metadata = k8s.meta.v1.ObjectMetaArgs(name=name, namespace=NAMESPACE)
        return k8s.core.v1.Service(
            f"{name}-hosts", metadata=metadata, spec=spec, opts=self.options([self.namespace])
        )

    def service(
        self,
        name: str,
        script: str,
        *arguments: str,
        cpu: str = "100m",
        http: str | None = None,
        memory: str = "256Mi",
    ) -> list[pulumi.Resource]:
        """A StatefulSet of one that runs ``python -c script arguments…`` and listens on port 6379.

        It is ready when it answers HTTP at the path ``http``, or accepts connections. Its volume is at /data, and
        its password in the Secret of its name, like that of its Service.
        """
        labels = {"slipway/service": name}
        metadata = k8s.meta.v1.ObjectMetaArgs(name=name, namespace=NAMESPACE)
        options = self.options([self.namespace])
        secret = k8s.core.v1.Secret(name, metadata=metadata, string_data={"password": PASSWORD}, opts=options)
        port = k8s.core.v1.ServicePortArgs(port=6379, target_port="queue")
        spec = k8s.core.v1.ServiceSpecArgs(selector=labels, ports=[port])
        service = k8s.core.v1.Service(name, metadata=metadata, spec=spec, opts=options)
        ready = k8s.core.v1.ProbeArgs(
            http_get=k8s.core.v1.HTTPGetActionArgs(path=http, port=6379) if http else None,
            tcp_socket=None if http else k8s.core.v1.TCPSocketActionArgs(port="queue"),
        )
        container = k8s.core.v1.ContainerArgs(
            name="main",
            command=["python", "-c", script, *arguments],
            env=[password_of(name)],
            ports=[k8s.core.v1.ContainerPortArgs(name="queue", container_port=6379)],
            readiness_probe=ready,
            resources=k8s.core.v1.ResourceRequirementsArgs(requests={"cpu": cpu}, limits={"memory": memory}),
            volume_mounts=[k8s.core.v1.VolumeMountArgs(name="data", mount_path="/data")],
        )
        claim = k8s.core.v1.PersistentVolumeClaimArgs(
            metadata=k8s.meta.v1.ObjectMetaArgs(name="data"),
            spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=["ReadWriteOnce"],
                resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": "1Gi"}),
            ),
        )
        stateful = k8s.apps.v1.StatefulSet(
            name,
            metadata=metadata,
            spec=k8s.apps.v1.StatefulSetSpecArgs(
                replicas=1,
                service_name=name,
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
                volume_claim_templates=[claim],
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels),
                    spec=k8s.core.v1.PodSpecArgs(containers=[container]),
                ),
            ),
            opts=self.options([self.namespace, secret]),
        )
        return [service, stateful]

    def app(
        self,
        name: str,
        script: str,
        *arguments: str,
        after: Sequence[pulumi.Resource] = (),
        env: Sequence[k8s.core.v1.EnvVarArgs] = (),
        port: int = 8000,
        probe: str | None = "/",
        people: Mapping[str, str] | None = None,
        replicas: int = 1,
        cpu: str = "100m",
        memory: str = "256Mi",
        grace: int = 5,
        keeps_data: bool = False,
    ) -> list[pulumi.Resource]:
        """A Deployment that runs ``python -c script arguments…`` as the app ``name`` and listens on ``port``.

        It is ready when it answers HTTP at the path ``probe``. ``people`` is the annotation of its Service. With
        ``keeps_data`` it is a StatefulSet of one with a volume at /data.
        """
        labels = {APP: name}
        metadata = k8s.meta.v1.ObjectMetaArgs(name=name, namespace=NAMESPACE)
        annotations = {PEOPLE: json.dumps(people)} if people else None
        host = k8s.core.v1.Service(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(name=name, namespace=NAMESPACE, annotations=annotations),
            spec=k8s.core.v1.ServiceSpecArgs(
                selector=labels, ports=[k8s.core.v1.ServicePortArgs(name="http", port=port, target_port="http")]
            ),
            opts=self.options([self.namespace]),
        )
        path = k8s.core.v1.HTTPGetActionArgs(path=probe, port="http")
        claim = k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name="store")
        mounts = [k8s.core.v1.VolumeMountArgs(name="store", mount_path="/store")]
        if keeps_data:
            mounts.append(k8s.core.v1.VolumeMountArgs(name="data", mount_path="/data"))
        container = k8s.core.v1.ContainerArgs(
            name="main",
            command=["python", "-c", script, *arguments],
            env=list(env),
            ports=[k8s.core.v1.ContainerPortArgs(name="http", container_port=port)],
            readiness_probe=k8s.core.v1.ProbeArgs(http_get=path) if probe else None,
            lifecycle=k8s.core.v1.LifecycleArgs(
                pre_stop=k8s.core.v1.LifecycleHandlerArgs(sleep=k8s.core.v1.SleepActionArgs(seconds=5))
            ),
            resources=k8s.core.v1.ResourceRequirementsArgs(requests={"cpu": cpu}, limits={"memory": memory}),
            volume_mounts=mounts,
        )
        template = k8s.core.v1.PodTemplateSpecArgs(
            metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels),
            spec=k8s.core.v1.PodSpecArgs(
                containers=[container],
                volumes=[k8s.core.v1.VolumeArgs(name="store", persistent_volume_claim=claim)],
                termination_grace_period_seconds=grace,
            ),
        )
        options = self.options([self.namespace, self.claim, *after])
        selector = k8s.meta.v1.LabelSelectorArgs(match_labels=labels)
        if not keeps_data:
            spec = k8s.apps.v1.DeploymentSpecArgs(replicas=replicas, selector=selector, template=template)
            return [host, k8s.apps.v1.Deployment(name, metadata=metadata, spec=spec, opts=options)]
        own = k8s.core.v1.PersistentVolumeClaimArgs(
            metadata=k8s.meta.v1.ObjectMetaArgs(name="data"),
            spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=["ReadWriteOnce"],
                resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": "1Gi"}),
            ),
        )
        kept = k8s.apps.v1.StatefulSetSpecArgs(
            replicas=1, service_name=name, selector=selector, template=template, volume_claim_templates=[own]
        )
        return [host, k8s.apps.v1.StatefulSet(name, metadata=metadata, spec=kept, opts=options)]


def password_of(service: str) -> k8s.core.v1.EnvVarArgs:
    """The variable with the service's password."""
    reference = k8s.core.v1.SecretKeySelectorArgs(name=service, key="password")
    source = k8s.core.v1.EnvVarSourceArgs(secret_key_ref=reference)
    return k8s.core.v1.EnvVarArgs(name="QUEUE_PASSWORD", value_from=source)


def address_of(service: str) -> k8s.core.v1.EnvVarArgs:
    """The variable with the service's host and port."""
    return k8s.core.v1.EnvVarArgs(name="QUEUE_ADDRESS", value=f"{service}:6379")


def ignore_disruption() -> k8s.batch.v1.PodFailurePolicyRuleArgs:
    return k8s.batch.v1.PodFailurePolicyRuleArgs(
        action="Ignore",
        on_pod_conditions=[
            k8s.batch.v1.PodFailurePolicyOnPodConditionsPatternArgs(type="DisruptionTarget", status="True")
        ],
    )


def on_exit_code(action: str, *codes: int) -> k8s.batch.v1.PodFailurePolicyRuleArgs:
    return k8s.batch.v1.PodFailurePolicyRuleArgs(
        action=action,
        on_exit_codes=k8s.batch.v1.PodFailurePolicyOnExitCodesRequirementArgs(operator="In", values=list(codes)),
    )


def training() -> None:
    """A slow training, a child process of its own, and a Job after it."""
    toys = Toys()
    child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    train = toys.job("toy-train", child + TRAINING, "/store", "0.15", rules=[ignore_disruption()])
    toys.job("toy-predict", "import sys; print(open(sys.argv[1]).read())", "/store/epochs", after=[train])


def hosts_of(job: str, count: int, port: int = 2222) -> list[str]:
    """The addresses of the pods of a Job with ``count`` nodes."""
    return [f"{job}-{index}.{job}:{port}" for index in range(count)]


def nodes() -> None:
    """A training on three nodes."""
    toys = Toys()
    rules = [ignore_disruption(), on_exit_code("Ignore", 137, 143, 15)]
    toys.job(
        "toy-train",
        NODE,
        "/store",
        "0.15",
        *hosts_of("toy-train", 3),
        nodes=3,
        rules=rules,
        deadline=120,
        after=[toys.hosts("toy-train")],
    )


def site() -> None:
    """An app that people open at the port PORT of the environment, and one that does not end when asked to."""
    toys, port = Toys(), int(os.environ["PORT"])
    token = k8s.core.v1.Secret(
        "token",
        metadata=k8s.meta.v1.ObjectMetaArgs(name="page-token", namespace=NAMESPACE),
        string_data={"token": "planted-token"},
        opts=toys.options([toys.namespace]),
    )
    reference = k8s.core.v1.SecretKeySelectorArgs(name="page-token", key="token")
    source = k8s.core.v1.EnvVarSourceArgs(secret_key_ref=reference)
    env = [k8s.core.v1.EnvVarArgs(name="PAGE_TOKEN", value_from=source)]
    model = toys.job("train", "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('seven')", "/store/model")
    people = {"title": "Draw a digit", "path": "/draw"}
    toys.app(
        "page", SITE, f"0.0.0.0:{port}", "/store/model", port=port, env=env, people=people, after=[model, token]
    )
    deaf = SITE.replace("os._exit(0)", "None")
    toys.app("deaf", deaf, "0.0.0.0:8000", "/store/model", after=[model], grace=300)


def stubborn() -> None:
    """A Job that does not end when it is asked to."""
    script = "import sys, time; open(sys.argv[1], 'w').write('1'); time.sleep(600)"
    Toys().job("stubborn", script, "/store/epochs", grace=300)


def rehearse(
    program: Callable[[], object],
    folder: Path,
    *,
    fresh: bool = False,
    disrupt: str | None = None,
    machines: int = 1,
    keeps: float | None = 0,
) -> tuple[Outcome, str]:
    """Rehearses ``program`` on so many nodes; returns the outcome and what was printed.

    It keeps the apps for ``keeps`` seconds, without an end where that is None.
    """
    console = Console(record=True, file=sys.stderr, width=200, highlight=False)
    options = Options("local", ROOT, folder, fresh=fresh, disrupt=disrupt)
    configuration = configure("local", ROOT)
    if machines > 1:
        with tempfile.TemporaryDirectory() as temporary:
            file = Path(temporary, "stack.yaml")
            text = Path(ROOT, "stacks", "Pulumi.local.yaml").read_text(encoding="utf-8")
            text = text.replace("nodes: 1", f"nodes: {machines}")
            many = "size: 2Gi\n    access_mode: ReadWriteMany\n    storage_class: files"
            file.write_text(text.replace("size: 2Gi", many), encoding="utf-8")
            configuration = configure("local", ROOT, file)
    keep = None if keeps == 0 else Demo(console, keeps).keep
    outcome = Session(program, configuration, options, console, keep).run()
    return outcome, console.export_text()


if __name__ == "__main__":
    program, machines = globals()[sys.argv[2]], int(sys.argv[3]) if len(sys.argv) > 3 else 1
    keeps = None if sys.argv[2] == "site" else 0
    sys.exit(rehearse(program, Path(sys.argv[1]), machines=machines, keeps=keeps)[0].exit_code)
