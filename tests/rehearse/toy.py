"""Small Pulumi programs on the one CPU pool of stack `local`, to rehearse in place of the real one.

As a script it rehearses one of them: ``python -m tests.rehearse.toy FOLDER PROGRAM [NODES]``.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes import labels as words
from slipway.infra.pipelines.results import RESULTS, Result
from slipway.infra.placed_model import PlacedStep, listener
from slipway.rehearse.demo import Demo
from slipway.rehearse.output.outcome import Outcome
from tests.support.rehearsing import recording_console, rehearse_file, several_nodes, stack_file

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
hosts = [word.rsplit(":", 1) for word in words[2:]]
# Nobody else may have its address.
server = socket.create_server((hosts[rank][0], int(hosts[rank][1])))
print("listens", *hosts[rank], flush=True)

def epochs():
    return int(done.read_text()) if done.exists() else 0

def together():
    others = {}
    while len(others) < len(hosts) - 1:
        connection = server.accept()[0].makefile("rwb", buffering=0)
        others[int(connection.readline())] = connection
    print("all", len(hosts), "begin after", epochs(), flush=True)
    try:
        while epochs() < 12:
            time.sleep(pause)
            for other in others.values(): other.write(b"step\\n")
            for other in others.values():
                if not other.readline(): raise OSError("one is lost")
            done.with_suffix(".new").write_text(str(epochs() + 1))
            done.with_suffix(".new").replace(done)
            print(f"Epoch {epochs()}/12", flush=True)
        for other in others.values(): other.write(b"end\\n")
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
text = pathlib.Path(sys.argv[2]).read_text() if len(sys.argv) > 2 else "nothing"
print("says", text, flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/die":
            os._exit(7)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("0.0.0.0" if ":" not in sys.argv[1] else sys.argv[1].split(":")[0],
    int(sys.argv[1].split(":")[-1])), Handler).serve_forever()
"""
"""A web server that says what is in a file; it ends when it is asked for ``/die``."""

Declared = TypeVar("Declared", bound=pulumi.Resource)
Manifest = dict[str, Any]


def present(**entries: Any) -> Manifest:
    """Those of the entries that say something."""
    return {key: value for key, value in entries.items() if value is not None and value not in ("", [], {}, ())}


class Toys:
    """Declares a provider, a namespace and a store, and then Jobs in it. Inputs are as in a manifest."""

    def __init__(self, labels: dict[str, str] | None = None) -> None:
        self.provider = k8s.Provider(CLUSTER, kubeconfig="nowhere")
        self.namespace = k8s.core.v1.Namespace(
            "namespace", metadata={"name": NAMESPACE, "labels": labels or {}}, opts=self.options()
        )
        self.claim = self.declare(k8s.core.v1.PersistentVolumeClaim, "store")

    def options(self, after: Sequence[pulumi.Resource] = ()) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(provider=self.provider, depends_on=list(after))

    def declare(
        self,
        kind: Callable[..., Declared],
        name: str,
        /,
        *,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
        metadata: Manifest | None = None,
        resource_name: str = "",
        **inputs: Any,
    ) -> Declared:
        """An object in the namespace, or where ``metadata`` says."""
        options = pulumi.ResourceOptions.merge(self.options([self.namespace, *after]), opts)
        metadata = {"name": name, "namespace": NAMESPACE, **(metadata or {})}
        return kind(resource_name or name, metadata=metadata, **inputs, opts=options)

    def job(
        self,
        name: str,
        script: str,
        *arguments: str,
        after: Sequence[pulumi.Resource] = (),
        replace_with: Sequence[pulumi.Resource] = (),
        cpu: str = "100m",
        selector: dict[str, str] | None = None,
        gpus: int = 0,
        backoff_limit: int = 0,
        deadline: int | None = None,
        grace: int = 5,
        rules: Sequence[Manifest] = (),
        replace_unready: bool = True,
        held: bool = False,
        service_account: str | None = None,
        env: Sequence[Manifest] = (),
        pipeline: str | None = None,
        run: str | None = None,
        inputs: Mapping[str, str] | None = None,
        results: Sequence[Result] = (),
        variant: Mapping[str, Any] | None = None,
        workers: int | None = None,
        nodes: int | None = None,
        job_labels: Mapping[str, str] | None = None,
        usage: str | None = None,
    ) -> k8s.batch.v1.Job:
        """A Job that runs ``python -c script arguments…`` with the store at /store.

        ``run`` is its directory in the store, ``usage`` where the use of its pods is kept there, ``inputs`` are
        those that it reads, ``results`` what it declares,
        ``variant`` what of the step that several Jobs are made of. With ``workers`` it is an Indexed Job, with
        ``nodes`` one whose pods find one another below the Service of its name and share no node. One that is
        ``held`` is suspended until its turn.
        """
        labels, host = {"toy": name}, "kubernetes.io/hostname"
        apart = {"topologyKey": host, "labelSelector": {"matchLabels": labels}}
        spread = {"maxSkew": 1, "topologyKey": host, "whenUnsatisfiable": "ScheduleAnyway"}
        annotations = {
            "pulumi.com/replaceUnready": "true" if replace_unready and not held else None,
            words.RUNS_ANNOTATION: "cluster-run" if held else None,
            words.RUN_ANNOTATION: run,
            words.USAGE_ANNOTATION: usage,
            words.INPUTS_ANNOTATION: inputs and json.dumps(inputs),
            words.RESULTS_ANNOTATION: RESULTS.dump_json(tuple(results)).decode() if results else None,
        }
        if variant and (told := listener()) is not None:
            told.append(PlacedStep(name, pipeline or name, name, "", run or "", variant=variant))
        devices = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        container = present(
            name="main",
            image="toy",
            command=["python", "-c", script],
            args=list(arguments),
            env=list(env),
            resources={"requests": {"cpu": cpu, **devices}, **({"limits": devices} if devices else {})},
            volumeMounts=[{"name": "store", "mountPath": "/store"}],
        )
        pod = present(
            affinity=nodes and {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
            subdomain=name if nodes else None,
            topologySpreadConstraints=[spread] if workers else None,
            restartPolicy="Never",
            terminationGracePeriodSeconds=grace,
            serviceAccountName=service_account,
            nodeSelector=selector,
            containers=[container],
            volumes=[STORE],
        )
        spec = present(
            suspend=held or None,
            backoffLimit=backoff_limit,
            activeDeadlineSeconds=deadline,
            podFailurePolicy={"rules": list(rules)} if rules else None,
            completionMode="Indexed" if workers or nodes else None,
            completions=workers or nodes,
            parallelism=workers or nodes,
            template={"metadata": {"labels": labels}, "spec": pod} if nodes else {"spec": pod},
        )
        return self.declare(
            k8s.batch.v1.Job,
            name,
            after=[self.claim, *after],
            metadata=present(
                annotations=present(**annotations),
                labels=present(**{words.NAME: pipeline, **(job_labels or {})}),
            ),
            spec=spec,
            opts=pulumi.ResourceOptions(replace_with=list(replace_with)),
        )

    def hosts(self, name: str, selector: Mapping[str, str] | None = None, ip: str = "None") -> k8s.core.v1.Service:
        """The headless Service of a Job with ``nodes``."""
        spec = {"clusterIP": ip, "selector": selector or {"toy": name}, "publishNotReadyAddresses": True}
        return self.declare(k8s.core.v1.Service, name, resource_name=f"{name}-hosts", spec=spec)

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
        secret = self.declare(k8s.core.v1.Secret, name, string_data={"password": PASSWORD})
        spec = {"selector": labels, "ports": [{"port": 6379, "targetPort": "queue"}]}
        service = self.declare(k8s.core.v1.Service, name, spec=spec)
        container = {
            "name": "main",
            "image": "toy",
            "command": ["python", "-c", script, *arguments],
            "env": [password_of(name)],
            "ports": [{"name": "queue", "containerPort": 6379}],
            "readinessProbe": {"httpGet": {"path": http, "port": 6379}}
            if http
            else {"tcpSocket": {"port": "queue"}},
            "resources": {"requests": {"cpu": cpu}, "limits": {"memory": memory}},
            "volumeMounts": [DATA_MOUNT],
        }
        stateful = stateful_set(name, labels, {"containers": [container]})
        return [service, self.declare(k8s.apps.v1.StatefulSet, name, after=[secret], spec=stateful)]

    def app(
        self,
        name: str,
        script: str,
        *arguments: str,
        after: Sequence[pulumi.Resource] = (),
        env: Sequence[Manifest] = (),
        port: int = 8000,
        people: Mapping[str, str] | None = None,
        replicas: int = 1,
        cpu: str = "100m",
        grace: int = 5,
        keeps_data: bool = False,
    ) -> list[pulumi.Resource]:
        """A Deployment that runs ``python -c script arguments…`` as the app ``name`` and listens on ``port``.

        It is ready when it answers HTTP. ``people`` is the annotation of its Service. With
        ``keeps_data`` it is a StatefulSet of one with a volume at /data.
        """
        labels = {words.APP: name}
        annotations = {words.PEOPLE: json.dumps(people)} if people else {}
        ports = [{"name": "http", "port": port, "targetPort": "http"}]
        host = self.declare(
            k8s.core.v1.Service,
            name,
            metadata={"annotations": annotations},
            spec={"selector": labels, "ports": ports},
        )
        container = present(
            name="main",
            image="toy",
            command=["python", "-c", script, *arguments],
            env=list(env),
            ports=[{"name": "http", "containerPort": port}],
            readinessProbe={"httpGet": {"path": "/", "port": "http"}},
            lifecycle={"preStop": {"sleep": {"seconds": 5}}},
            resources={"requests": {"cpu": cpu}, "limits": {"memory": "256Mi"}},
            volumeMounts=[{"name": "store", "mountPath": "/store"}, *([DATA_MOUNT] if keeps_data else [])],
        )
        pod = {"containers": [container], "volumes": [STORE], "terminationGracePeriodSeconds": grace}
        kind, spec = k8s.apps.v1.StatefulSet, stateful_set(name, labels, pod)
        if not keeps_data:
            template = {"metadata": {"labels": labels}, "spec": pod}
            spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
            kind = k8s.apps.v1.Deployment
        return [host, self.declare(kind, name, after=[self.claim, *after], spec=spec)]

    def ingress_policy(
        self, name: str, pods: Mapping[str, str], *clients: Mapping[str, str]
    ) -> k8s.networking.v1.NetworkPolicy:
        """Lets pods with labels of ``clients`` connect to those with the labels ``pods``, and no others."""
        peers = [{"podSelector": {"matchLabels": labels}} for labels in clients]
        selector = {"matchLabels": pods} if pods else {}
        ingress = [{"from": peers}] if peers else []
        spec = {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": ingress}
        return self.declare(k8s.networking.v1.NetworkPolicy, name, spec=spec)


STORE = {"name": "store", "persistentVolumeClaim": {"claimName": "store"}}
DATA_MOUNT = {"name": "data", "mountPath": "/data"}


def stateful_set(name: str, labels: Mapping[str, str], pod: Manifest) -> Manifest:
    """The spec of a StatefulSet of one with a volume named `data`."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "replicas": 1,
        "serviceName": name,
        "selector": {"matchLabels": labels},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }


def variable(name: str, value: str = "", *, field: str = "", secret: str = "", key: str = "") -> Manifest:
    """A variable with a value, or with what the kubelet reads from a field of the pod or a key of a Secret."""
    if field:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
    if secret:
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
    return {"name": name, "value": value}


def password_of(service: str) -> Manifest:
    """The variable with the service's password."""
    return variable("QUEUE_PASSWORD", secret=service, key="password")


def address_of(service: str) -> Manifest:
    """The variable with the service's host and port."""
    return variable("QUEUE_ADDRESS", f"{service}:6379")


def ignore_disruption() -> Manifest:
    return {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def on_exit_code(action: str, *codes: int) -> Manifest:
    return {"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}


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
    toys.job(
        "toy-train",
        NODE,
        "/store",
        "0.15",
        *hosts_of("toy-train", 3),
        nodes=3,
        rules=[ignore_disruption(), on_exit_code("Ignore", 137, 143, 15)],
        deadline=120,
        after=[toys.hosts("toy-train")],
    )


def site() -> None:
    """An app that people open at the port PORT of the environment, and one that does not end when asked to."""
    toys, port = Toys(), int(os.environ["PORT"])
    token = toys.declare(k8s.core.v1.Secret, "page-token", string_data={"token": "planted-token"})
    env = [variable("PAGE_TOKEN", secret="page-token", key="token")]
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
    quiet: int = 0,
    machines: int = 1,
    keeps: float | None = 0,
) -> tuple[Outcome, str]:
    """Rehearses ``program`` on so many nodes; returns the outcome and what was printed.

    It keeps the apps for ``keeps`` seconds, without an end where that is None.
    """
    console = recording_console()
    keep = None if keeps == 0 else Demo(console, keeps).keep
    with tempfile.TemporaryDirectory() as temporary:
        file = stack_file(Path(temporary, "stack.yaml"), change=several_nodes(machines)) if machines > 1 else None
        return rehearse_file(
            folder, file, program, fresh=fresh, disrupt=disrupt, quiet=quiet, console=console, keep=keep
        )


if __name__ == "__main__":
    program, machines = globals()[sys.argv[2]], int(sys.argv[3]) if len(sys.argv) > 3 else 1
    keeps = None if sys.argv[2] == "site" else 0
    sys.exit(rehearse(program, Path(sys.argv[1]), machines=machines, keeps=keeps)[0].exit_code)
