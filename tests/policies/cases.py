"""For each policy that needs no cloud: stacks that trip it and stacks that do not, as alike as can be."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from slipway.engine.provider_outputs import NOTICE
from slipway.infra.kubernetes.labels import IMAGE_ANNOTATION, INPUTS_ANNOTATION, RUN_ANNOTATION, USAGE_ANNOTATION
from slipway.infra.kubernetes.shipping.sizes import LIMIT
from slipway.infra.pipelines.images import TAGS
from slipway.infra.review.facts import Charge, Price, Seconds, Source
from slipway.infra.review.stack import UNKNOWN, Resource, Secret, Stack
from slipway.policies.jobs import LOGIN
from tests.policies.samples import (
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    OF_QUEUE,
    SERVICE,
    asking,
    container,
    entrance,
    gpu_pod,
    job,
    let_in,
    pod,
    pool,
    resource,
    serving,
    shut,
    stack,
    unawaited,
    worker,
    workload,
)
from tests.support.places import with_places

ZONE = "topology.kubernetes.io/zone"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
ADMISSION = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
QUOTA = "kubernetes:core/v1:ResourceQuota"
RBAC = "kubernetes:rbac.authorization.k8s.io/v1"
RELEASE = "kubernetes:helm.sh/v3:Release"
FAST = pool("t4", gpus=1, max_nodes=2, machine="g4dn.8xlarge", faster="efa: true")
TOGETHER: dict[str, Any] = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
IGNORED = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
IMAGE = {
    "name": "mnist",
    "tag": "context-0a1b",
    "context": "workloads/mnist",
    "dockerfile": "Dockerfile",
    "files": 2,
    "bytes": 900,
}
SOURCE = Source("https://prices.example", date(2026, 11, 1))


def moved(*spot: bool, sure: Sequence[bool]) -> Stack:
    """A step on two nodes of one of several pools, of which these are Spot, and these `sure`."""
    pools = [pool(f"t4-{index}", gpus=1, spot=is_spot, max_nodes=2) for index, is_spot in enumerate(spot)]
    places = [job(at(entry.name, **APART), f"at-{entry.name}", **TOGETHER) for entry in pools]
    probe = job(at("t4-0"), "probe", backoffLimit=0, podFailurePolicy=IGNORED)
    return stack(*with_places(job(pod()), places, probe, sure=sure), pools=[pool("cpu"), *pools])


def at(pool_name: str, **changes: Any) -> dict[str, Any]:
    """A pod with a GPU for the pool of that name."""
    return gpu_pod(nodeSelector={"pool": pool_name}, **changes)


LOGIN_IMAGE = "quay.io/oauth2-proxy/oauth2-proxy:v7.15.5"
ROUTES = "gateway.networking.k8s.io/v1"
PAGE = {"service": {"name": "page", "port": {"number": 80}}}


def ingress(*, tls: bool = True, **annotations: str) -> Resource:
    """An Ingress to the Service ``page``."""
    rules = [{"host": "page.example.org", "http": {"paths": [{"path": "/", "backend": PAGE}]}}]
    spec = {"rules": rules, **({"tls": [{"hosts": ["page.example.org"], "secretName": "page"}]} if tls else {})}
    metadata = {"name": "page", "namespace": "slipway", "annotations": annotations}
    return resource("kubernetes:networking.k8s.io/v1:Ingress", "page", {"metadata": metadata, "spec": spec})


def login(**more: Any) -> list[Resource]:
    """A Service ``page`` that leads to a login proxy, ``more`` of whose container is other."""
    labels = {"app": "login"}
    metadata = {"name": "page", "namespace": "slipway"}
    service = {"metadata": metadata, "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 4180}]}}
    args = ["--oidc-issuer-url=https://login.example.org", "--email-domain=example.org"]
    main = {"name": "login", "image": LOGIN_IMAGE, "args": args, **more}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [main]}}
    return [
        resource(SERVICE, "page", service),
        resource(DEPLOYMENT, "login", {"metadata": metadata, "spec": {"template": template}}),
    ]


def patch_of(of: Resource, properties: Mapping[str, Any]) -> Resource:
    """What patches the object ``of``."""
    metadata = {key: value for key, value in of.properties["metadata"].items() if key in {"name", "namespace"}}
    return resource(f"{of.type}Patch", f"{of.name}-patch", {"metadata": metadata, **properties})


def by_gateway(
    *, protocol: str = "HTTPS", iap: bool = True, kind: str = "HTTPRoute", beside: str = "", client: str = "own"
) -> list[Resource]:
    """A Gateway and its route to the Service ``page``, with a policy for it, and to the Service ``beside``."""

    def custom(kind: str, api: str, spec: Mapping[str, Any]) -> Resource:
        properties = {"metadata": {"name": "page", "namespace": "slipway"}, "spec": spec}
        return resource(f"kubernetes:{api}:{kind}", kind, properties)

    target = {"group": "", "kind": "Service", "name": "page"}
    return [
        custom("Gateway", ROUTES, {"listeners": [{"name": "it", "protocol": protocol, "port": 443}]}),
        custom(
            kind,
            ROUTES,
            {
                "parentRefs": [{"name": "page"}],
                "hostnames": ["page.example.org"],
                "rules": [{"backendRefs": [{"name": each, "port": 80} for each in ("page", beside) if each]}],
            },
        ),
        custom(
            "BackendPolicy",
            "example.org/v1",
            {"default": {"iap": {"enabled": iap, "clientID": client}}, "targetRef": target},
        ),
    ]


def route(**tls: str) -> Resource:
    """A Route of OpenShift to the Service ``page``."""
    spec = {"host": "page.example.org", "to": {"kind": "Service", "name": "page"}, **({"tls": tls} if tls else {})}
    metadata = {"name": "page", "namespace": "slipway"}
    return resource("kubernetes:route.openshift.io/v1:Route", "page", {"metadata": metadata, "spec": spec})


QUEUE_API = "kueue.x-k8s.io/v1beta2"


def queue_object(kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> Resource:
    properties = {"apiVersion": QUEUE_API, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
    return resource(f"kubernetes:{QUEUE_API}:{kind}", name, properties)


def queued(
    gpus: int = 2, pods: int = 2, *, without: str = "", name: str = "slipway", held: bool = False, **changes: Any
) -> Stack:
    """A Job of so many pods with a GPU each, in a queue with so many GPUs; less what is called ``without``.

    One that is ``held`` gets into the queue later.
    """
    amounts = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": gpus}
    quotas = [{"name": each, "nominalQuota": most} for each, most in amounts.items()]
    flavor = {"name": "ml.t4", "resources": quotas}
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    spec = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "slipway"}},
        "resourceGroups": [{"coveredResources": list(amounts), "flavors": [flavor]}],
        **changes,
    }
    train = job(gpu_pod(), parallelism=pods, completions=pods)
    queue = {"annotations": {"slipway/queue": name}} if held else {"labels": {"kueue.x-k8s.io/queue-name": name}}
    there = [
        resource("kubernetes:core/v1:Namespace", "namespace", {"metadata": {"name": "slipway"}}),
        queue_object("ResourceFlavor", "ml.t4", {"nodeLabels": {"pool": "t4"}, "nodeTaints": [taint]}),
        queue_object("ClusterQueue", "ml", spec),
        queue_object("LocalQueue", "slipway", {"clusterQueue": "ml"}, namespace="slipway"),
        replace(train, properties={**train.properties, "metadata": {"namespace": "slipway", **queue}}),
    ]
    pools = [pool("cpu"), pool("t4", gpus=1, max_nodes=8)]
    return stack(*(each for each in there if each.name != without), pools=pools)


def of_a_team(gpus: int = 2, pods: int = 2, *, reclaims: str = "Any", elsewhere: bool = False) -> Stack:
    """A Job of a team beside another one with four GPUs; with ``elsewhere`` another stack has the queues."""
    found = queued(gpus, pods, cohortName="all", preemption={"reclaimWithinCohort": reclaims})
    queue = next(each for each in found.resources.values() if each.name == "ml")
    (group,) = queue.properties["spec"]["resourceGroups"]
    quotas = [{"name": each["name"], "nominalQuota": "4"} for each in group["flavors"][0]["resources"]]
    groups = [{**group, "flavors": [{"name": "ml.t4", "resources": quotas}]}]
    other = queue_object("ClusterQueue", "other", {**queue.properties["spec"], "resourceGroups": groups})
    there = [*found.resources.values(), other]
    if not elsewhere:
        return replace(found, resources={each.urn: each for each in there})
    theirs = [each for each in there if each.name in {"ml", "other", "ml.t4"}]
    cluster = found.cluster_of(queue)
    own = {each.urn: each for each in there if each not in theirs}
    return replace(found, resources=own, declared_elsewhere={cluster: theirs})


def together(**options: Any) -> Stack:
    """A Job whose pods find one another by a Service."""
    named = {"metadata": {"labels": OF_QUEUE}, "spec": pod()}
    return stack(job(pod(), template=named), entrance(clusterIP="None"), shut("Ingress"), **options)


def waiting(it: Resource, *others: Resource) -> Resource:
    """The resource, once the others are there."""
    return replace(it, dependencies=frozenset(other.urn for other in others))


def service(*, patch: Mapping[str, Any] | None = None, **spec: Any) -> Stack:
    annotations = spec.pop("annotations", {})
    made = resource(SERVICE, "web", {"metadata": {"annotations": annotations}, "spec": spec})
    return stack(made, *([patch_of(made, {"spec": patch})] if patch else []))


def role(**rule: Any) -> Stack:
    return stack(resource(f"{RBAC}:ClusterRole", "role", {"metadata": {}, "rules": [rule]}))


def chart(chart: str, version: object = None, **values: Any) -> Stack:
    return stack(resource(RELEASE, "plugin", {"chart": chart, "version": version, "values": values}))


def config_map(size: int, binary: int = 0) -> Stack:
    properties = {"data": {"a": "x" * size}, "binaryData": {"b": base64.b64encode(b"x" * binary).decode()}}
    return stack(resource(CONFIG_MAP, "bundle", properties))


def admission(size: int) -> Stack:
    variables = [{"name": "mark", "expression": "x"}, {"name": "pod0", "expression": "x" * size}]
    return stack(resource(ADMISSION, "schedule", {"spec": {"variables": variables}}))


FROM_SECRET = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "queue", "key": "password"}}}


def in_container(**changes: Any) -> Stack:
    return stack(job(pod(container(**changes))))


def in_pod(**changes: Any) -> Stack:
    return stack(job(pod(**changes)))


def building(image: Any) -> Stack:
    """A Job that says that it builds ``image``."""
    built = resource(
        JOB,
        "image",
        {**job(pod()).properties, "metadata": {"namespace": "slipway", "annotations": {IMAGE_ANNOTATION: image}}},
    )
    return stack(built)


def affine(key: str, *values: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeSelector": None, "affinity": {"nodeAffinity": required}}


def variables(**values: Any) -> Stack:
    return in_container(env=[{"name": name, "value": value} for name, value in values.items()])


def configured(**values: Any) -> Stack:
    return stack(configuration={key.replace("__", ":"): value for key, value in values.items()})


def quota(limit: object, jobs: int, **options: Any) -> Stack:
    hard = {"count/jobs.batch": limit, "requests.cpu": "1"}
    properties = {"metadata": {"namespace": "slipway"}, "spec": {"hard": hard}}
    made = [job(pod(), f"job-{number}") for number in range(jobs)]
    return stack(resource(QUOTA, "quota", properties, **options), *made)


def secret(**data: Any) -> Stack:
    return stack(resource("kubernetes:core/v1:Secret", "keys", {"stringData": data}))


BUCKET = ("test:storage/bucket:Bucket", "store", {})
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"
CRON_JOB = "kubernetes:batch/v1:CronJob"
NAMESPACE = "kubernetes:core/v1:Namespace"
WIDE = (pool("cpu", max_nodes=4), pool("t4", gpus=1))
APART: dict[str, Any] = {
    "subdomain": "train",
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
            ]
        }
    },
}
ONLY_SPOT = {"nodeSelector": {"pool": "spot"}}


def beside(*others: Resource, **options: Any) -> Stack:
    """A service, with all that it needs, and others."""
    return stack(serving(), entrance(), let_in(), *others, **options)


def on_four_nodes(cpu: str) -> Resource:
    """A Job whose four pods work together, with so much CPU each."""
    return job(pod(container(resources=asking(cpu=cpu)), **APART), parallelism=4, completions=4)


def nightly(reads: str = "") -> Stack:
    """A CronJob that runs a Job again, and an app that reads the result ``reads``."""
    properties = {"metadata": {"annotations": {RUN_ANNOTATION: "churn/train/1a2b"}}, "spec": {}}
    train = resource(JOB, "churn-train", properties)
    cron = resource(
        CRON_JOB, "churn-schedule", {"spec": {"concurrencyPolicy": "Forbid"}}, dependencies=(train.urn,)
    )
    annotations = {INPUTS_ANNOTATION: json.dumps({"train": reads})} if reads else {}
    template = {"metadata": {"annotations": annotations}, "spec": {}}
    return stack(train, cron, resource(DEPLOYMENT, "churn-page", {"spec": {"template": template}}))


def restricted(*others: Resource, level: str = "restricted") -> Stack:
    """A namespace that refuses pods, and others in it."""
    labels = {"pod-security.kubernetes.io/enforce": level}
    return stack(resource(NAMESPACE, "slipway", {"metadata": {"name": "slipway", "labels": labels}}), *others)


HARDENED = container(
    securityContext={
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
)


def spending(hourly: float | None = 6.0, prices: Any = None, **budget: float) -> Stack:
    """A measured step of up to an hour, on a GPU node that boots ten minutes, and what the stack may spend."""
    t4 = pool("t4", gpus=1, boot=Seconds(600.0, SOURCE))
    step = job(gpu_pod(), activeDeadlineSeconds=3600)
    metadata = {
        **step.properties["metadata"],
        "name": "train",
        "annotations": {USAGE_ANNOTATION: ".usage/p/train"},
    }
    step = replace(step, properties={**step.properties, "metadata": metadata})
    content = json.dumps({"prices": {} if prices is None else {"p.train": prices}})
    told = resource(CONFIG_MAP, "dev-limits", {"metadata": {"name": "limits"}, "data": {"limits.json": content}})
    price = None if hourly is None else Price(hourly, "hour", SOURCE)
    charge = Charge(t4.urn, "machine", price, pool=t4.urn, idle=0, most=1)
    made = stack(step, told, pools=[pool("cpu"), t4], configuration={"slipway:budget": budget} if budget else {})
    return replace(made, charges=[charge])


TRIPS: Mapping[str, Sequence[Stack]] = {
    "output-as-text": [stack(resource(JOB, "a", {"spec": {"a": [f"a {NOTICE}"]}}))],
    "refused-by-kubernetes": [stack(replace(resource(JOB, "a", {"spec": {}}), place="__main__.py:1"))],
    # Ten minutes of boot and ten that it is kept are $2, and an hour of work $6.
    "budget-too-small": [spending(run=1.9), spending(month=1.9)],
    "budget-may-end-run": [spending(run=5), spending(month=5)],
    "budget-not-counted": [spending(prices={}, run=100)],
    "unschedulable-pod": [
        in_container(resources=asking(cpu="8")),
        stack(workload(DEPLOYMENT, pod(nodeSelector={"pool": "elsewhere"}))),
        stack(job(gpu_pod(container(resources=asking({"nvidia.com/gpu": "2"}))))),
        # Init containers that restart always are there beside the others.
        in_pod(initContainers=[container(restartPolicy="Always", resources=asking(cpu="3800m"))]),
    ],
    "gpu-pool-without-taint": [stack(pools=[pool("cpu"), pool("t4", gpus=1, taints=[])])],
    "gpu-pool-always-on": [
        stack(pools=[pool("cpu"), pool("t4", gpus=1, min_nodes=1)]),
        # A stack whose program fails has its file.
        configured(slipway__clusters={"dev": {"pools": {"t4": {"accelerator": "t4", "nodes": {"count": 1}}}}}),
    ],
    "gpu-nodes-without-pods": [
        stack(job(gpu_pod()), pools=[pool("cpu"), pool("t4", gpus=1, min_nodes=2, max_nodes=2, run_limit=3600)]),
        # One after the other.
        stack(
            job(gpu_pod(), "train"),
            waiting(job(gpu_pod(), "predict"), job(gpu_pod(), "train")),
            pools=[pool("cpu"), pool("t4", gpus=1, min_nodes=2, max_nodes=2, run_limit=3600)],
        ),
    ],
    "slow-network-between-nodes": [stack(job(gpu_pod(subdomain="train"), **TOGETHER), pools=[FAST])],
    "unguarded-build": [
        building(json.dumps(IMAGE)),
        building(json.dumps({**IMAGE, "dockerfile": "gpu/Dockerfile"})),
    ],
    "public-service": [
        service(type="LoadBalancer"),
        service(type="LoadBalancer", loadBalancerSourceRanges=["0.0.0.0/0"]),
        service(type="LoadBalancer", loadBalancerSourceRanges=["0.0.0.0/1", "128.0.0.0/1"]),
        service(type="NodePort"),
        service(type="ClusterIP", externalIPs=["192.0.2.1"]),
        service(patch={"type": "LoadBalancer"}, type="ClusterIP"),
    ],
    "secret-in-plain-config": [
        configured(slipway__password="hunter2"),
        configured(slipway__password="/hunter2"),
        configured(cloud__secretKey="abc123"),
        configured(slipway__nested={"list": [{"api-token": "abc123"}]}),
        configured(slipway__text=PEM),
        configured(db__password=12345678, db__port=5432),
        configured(wandb__apikey="abc123"),
        configured(db__login='{"host": "db", "password": "hunter2"}'),
        configured(kubernetes__kubeconfig="users:\n- user:\n    token: abc1230123456789\n"),
        configured(slipway__key="AKIA" + "A" * 16),
        configured(slipway__account='{"type": "service_account", "private_key": "…"}'),
        configured(slipway__pipelines={"login": {"oidc": {"client_secret": "GOCSPX-aBcDeFgHiJkLmNoP"}}}),
        configured(other__login={"oidc": {"client_secret": "page-login"}}),
    ],
    "secret-in-plain-object": [
        secret(password="hunter2"),
        stack(resource(CONFIG_MAP, "keys", {"data": {"id_rsa": PEM}})),
        variables(URL="postgres://me:hunter2@db.example.com/x"),
        variables(URL="redis://:hunter2@db.example.com:6379"),
        variables(WANDB_API_KEY="abc123"),
        in_container(args=["--password=hunter2"]),
        in_container(args=["--user", "me", "--db-password", "hunter2"]),
        stack(resource(CONFIG_MAP, "keys", {"data": {"password": "hunter2"}})),
        chart("grafana", "8.5.1", adminPassword="hunter2"),
    ],
    "secret-in-command-line": [
        in_container(env=[FROM_SECRET], args=["--requirepass", "$(PASSWORD)"]),
        in_container(env=[FROM_SECRET], command=["serve", "--url=redis://:$(PASSWORD)@here"]),
    ],
    "unpinned-image": [
        in_container(image="python"),
        in_container(image="registry.example.com:5000/python:latest"),
        in_container(image="python:3.11"),
        in_pod(initContainers=[container(image="busybox")]),
    ],
    "default-image-by-tag": [in_container(image=tag) for tag in TAGS],
    "production-unprotected": [
        stack(name="ml-prod", configuration={"slipway:protect": False}),
        stack(resource(*BUCKET), name="prod-eu", configuration={"slipway:protect": True}),
        stack(resource("test:fsx/lustreFileSystem:LustreFileSystem", "scratch", {}), name="prod"),
        stack(resource("test:rds/instance:Instance", "db", {}), name="prod"),
    ],
    "admission-too-long": [admission(100_001)],
    "configmap-too-large": [config_map(LIMIT + 1), config_map(LIMIT, 1)],
    "configmap-near-limit": [config_map(int(0.9 * LIMIT) + 1), config_map(LIMIT)],
    "count-over-quota": [quota("2", 3), quota(2, 3)],
    "no-room-beside-services": [
        beside(job(pod(container(resources=asking(cpu="3800m"))))),
        # One pod of a service on each of the nodes.
        beside(
            resource(
                DEPLOYMENT,
                "other",
                {"spec": {"replicas": 2, "template": {"spec": pod(container(resources=asking(cpu="2500m")))}}},
            ),
            job(pod(container(resources=asking(cpu="3"))), parallelism=2, completions=2),
            pools=[pool("cpu", max_nodes=2)],
        ),
    ],
    "queue-quota": [
        queued(pods=3),
        queued(pods=3, held=True),
        queued(gpus=0),
        queued(resourceGroups=[]),
    ],
    "queue-share": [
        of_a_team(gpus=1),
        of_a_team(gpus=1, elsewhere=True),
        of_a_team(gpus=3, pods=4),
    ],
    "queue-inactive": [
        queued(without="ml.t4"),
        queued(stopPolicy="Hold"),
        queued(namespaceSelector={"matchLabels": {"team": "vision"}}),
        queued(name="other"),
    ],
    "more-nodes-than-room": [
        stack(job(gpu_pod(**APART), **TOGETHER)),
        # The service has half a CPU of one of the four nodes.
        beside(on_four_nodes(cpu="4"), pools=WIDE),
    ],
    "spot-job-on-several-nodes": [
        stack(job(gpu_pod(**APART), **TOGETHER), pools=[pool("t4", gpus=1, spot=True, max_nodes=2)]),
        moved(True, True, sure=[False, True]),
    ],
    "last-place-not-sure": [moved(True, False, sure=[False, False]), moved(False, True, sure=[True, False])],
    "more-workers-than-room": [
        # Four CPUs, of which the service has half a one.
        stack(job(pod(container(resources=asking(cpu="2"))), parallelism=3, completions=3)),
        beside(worker(pods=8)),
        stack(job(pod(container(resources=asking(memory="5Gi"))), parallelism=5, completions=5), pools=WIDE),
    ],
    "app-behind-schedule": [nightly(reads="churn/train/1a2b")],
    "service-on-spot": [
        stack(serving(), entrance(), let_in(), pools=[pool("cpu", spot=True)]),
        stack(serving(), pools=[pool("cpu", run_limit=604_800)]),
        stack(serving(**ONLY_SPOT), pools=[pool("cpu"), pool("spot", spot=True)]),
    ],
    "service-open-to-all": [
        stack(serving(), entrance()),
        stack(serving(), entrance(), shut("Egress")),
        stack(serving(), entrance(), let_in(**{"from": None})),
    ],
    "longer-than-login": [stack(job(pod(), activeDeadlineSeconds=LOGIN + 1))],
    "pod-refused": [
        restricted(job(pod())),
        restricted(job(pod(container(securityContext={**HARDENED["securityContext"], "seccompProfile": None})))),
        restricted(serving()),
    ],
    "open-without-login": [
        stack(ingress()),
        stack(ingress(tls=False, **{"nginx.ingress.kubernetes.io/auth-url": "https://login.example.org"})),
        stack(
            ingress(
                **{
                    "alb.ingress.kubernetes.io/auth-type": "oidc",
                    "alb.ingress.kubernetes.io/auth-on-unauthenticated-request": "allow",
                }
            )
        ),
        stack(*by_gateway(iap=False)),
        stack(*by_gateway(protocol="HTTP")),
        stack(*by_gateway(beside="open")),
        stack(*by_gateway(kind="GRPCRoute", iap=False)),
        stack(route()),
        # What a patch leaves of an object counts, whoever declares the object.
        stack(*by_gateway(), patch_of(by_gateway()[2], {"spec": {"default": {"iap": {"enabled": False}}}})),
        stack(
            ingress(**{"nginx.ingress.kubernetes.io/auth-url": "https://login.example.org"}),
            patch_of(ingress(), {"spec": {"tls": []}}),
        ),
        stack(patch_of(ingress(), {"spec": {"rules": [{"host": "page.example.org"}]}})),
    ],
}

PASSES: Mapping[str, Sequence[Stack]] = {
    "output-as-text": [stack(resource(JOB, "a", {"spec": {"a": ["a"]}}))],
    # What a stack file asks for has checks of its own.
    "refused-by-kubernetes": [stack(resource(JOB, "a", {"spec": {}}))],
    "budget-too-small": [spending(run=2.5), spending(None, run=0.1), spending()],
    "budget-may-end-run": [spending(run=9), spending(run=1), spending(month=9)],
    "budget-not-counted": [spending(prices={"t4": {"dollars": 6.0}}, run=100), spending(prices={})],
    "unschedulable-pod": [
        in_container(resources={"requests": {"cpu": "4"}}),
        stack(job(gpu_pod())),
        # Init containers run one after another, and before the others.
        in_pod(initContainers=[container(resources={"requests": {"cpu": "4"}})] * 2),
        stack(workload(DAEMON_SET, pod(nodeSelector={"pool": "elsewhere"}))),
        in_container(resources={"requests": {"cpu": UNKNOWN}}),
        in_pod(nodeSelector={"kubernetes.io/os": "linux"}),
        in_pod(**affine("kubernetes.io/arch", "amd64")),
        # One zone of a pool over several, beside a pool in one.
        stack(
            workload(DEPLOYMENT, pod(nodeSelector={ZONE: "a"})),
            pools=[pool("cpu"), pool("other", labels={ZONE: "b"})],
        ),
    ],
    "gpu-pool-without-taint": [
        stack(),
        # Everything has to run there.
        stack(pools=[pool("t4", gpus=1, taints=[])]),
    ],
    "gpu-pool-always-on": [
        stack(),
        stack(pools=[pool("cpu", min_nodes=1), pool("t4", gpus=1, min_nodes=1, run_limit=3600)]),
        # Nodes that are there anyway.
        stack(pools=[pool("t4", gpus=1, min_nodes=1, urn="")]),
        configured(slipway__clusters={"dev": {"pools": {"t4": {"accelerator": "t4", "nodes": {"total_min": 0}}}}}),
    ],
    "gpu-nodes-without-pods": [
        stack(job(gpu_pod()), pools=[pool("cpu"), pool("t4", gpus=1, min_nodes=1)]),
        stack(
            job(gpu_pod(), "train"),
            job(gpu_pod(), "predict"),
            pools=[pool("cpu"), pool("t4", gpus=1, min_nodes=2, max_nodes=2)],
        ),
        stack(job(gpu_pod(), parallelism=2), pools=[pool("cpu"), pool("t4", gpus=1, min_nodes=2, max_nodes=2)]),
        # What serves may have as many pods as it needs.
        stack(workload(DEPLOYMENT, gpu_pod()), pools=[pool("cpu"), pool("t4", gpus=1, min_nodes=2, max_nodes=2)]),
    ],
    "slow-network-between-nodes": [
        stack(job(gpu_pod(subdomain="train"), **TOGETHER), pools=[replace(FAST, faster="")]),
        stack(job(gpu_pod(), **TOGETHER), pools=[FAST]),
        stack(job(gpu_pod(subdomain="train")), pools=[FAST]),
    ],
    "unguarded-build": [
        in_pod(),
        building(UNKNOWN),
        in_container(image=f"example.com/built:tag@sha256:{'0' * 64}"),
    ],
    "public-service": [
        service(type="ClusterIP"),
        service(),
        service(type="LoadBalancer", loadBalancerSourceRanges=["192.0.2.0/24"]),
        service(type="LoadBalancer", annotations=UNKNOWN),
        service(type="ClusterIP", externalIPs=UNKNOWN),
        service(type="LoadBalancer", annotations={"example.com/load-balancer-type": "Internal"}),
        service(type="LoadBalancer", annotations={"example.com/some-load-balancer-internal": "true"}),
    ],
    "secret-in-plain-config": [
        configured(slipway__password="[secret]"),
        configured(slipway__password=Secret("")),
        configured(slipway__secret_name="keys", slipway__token_url="https://example.com", slipway__tokens=3),
        configured(slipway__store={"kind": "s3_compatible", "secret": "csi-s3-secret"}),
        configured(slipway__kubeconfig="~/.kube/config"),
        configured(slipway__pipelines={"login": {"oidc": {"client_secret": "page-login"}}}),
        configured(db__password="", db__passwordLength=16, app__debug_token=True),
    ],
    "secret-in-command-line": [
        in_container(env=[FROM_SECRET], args=["sh", "-c", 'serve <<< "$PASSWORD"']),
        # The kubelet leaves it as it is.
        in_container(env=[FROM_SECRET], args=["$$(PASSWORD)"]),
        in_container(env=[{"name": "PORT", "value": "80"}], args=["--port", "$(PORT)"]),
    ],
    "secret-in-plain-object": [
        secret(password=Secret("")),
        secret(password=UNKNOWN),
        stack(resource(CONFIG_MAP, "code", {"data": {"train.py": "password = input()"}})),
        stack(resource(CONFIG_MAP, "tokenizer", {"data": {"tokenizer.json": '{"unk_token": "unknown"}'}})),
        variables(HF_TOKEN=UNKNOWN, DB_PASSWORD="$(OTHER)", ALLOW_EMPTY_PASSWORD="yes"),
        variables(
            GOOGLE_APPLICATION_CREDENTIALS="/var/run/key.json", AWS_WEB_IDENTITY_TOKEN_FILE="/var/run/token"
        ),
        in_container(args=["--db-password", UNKNOWN, "--tls-secret=my-tls", "--token-ttl", "15m"]),
        in_container(args=["--queue-password", "QUEUE_SECRET"], env=[{"name": "QUEUE_SECRET", "valueFrom": {}}]),
        chart(
            "db", "1.2.3", auth={"existingSecret": "db", "password": "", "passwordKey": "key"}, usePassword=True
        ),
    ],
    "unpinned-image": [in_container(), in_container(image="python:3.11.4-slim"), in_container(image=UNKNOWN)],
    "default-image-by-tag": [in_container(), *(in_container(image=f"{tag}@sha256:{'0' * 64}") for tag in TAGS)],
    "production-unprotected": [
        stack(resource(*BUCKET, protect=True), name="ml-prod", configuration={"slipway:protect": True}),
        stack(resource(*BUCKET), name="product", configuration={"slipway:protect": False}),
        stack(resource(*BUCKET), name="ml-non-prod", configuration={"slipway:protect": False}),
        stack(resource(*BUCKET, protect=True), name="prod", configuration={"slipway:protect": "yes"}),
    ],
    "admission-too-long": [admission(100_000)],
    "configmap-too-large": [config_map(LIMIT)],
    "configmap-near-limit": [config_map(int(0.9 * LIMIT) - 1), config_map(0)],
    "count-over-quota": [quota("2", 2)],
    "no-room-beside-services": [
        beside(job(pod(container(resources=asking(cpu="3500m"))))),
        beside(job(pod(container(resources=asking(cpu="3800m")))), pools=WIDE),
        # No node can take it at all.
        beside(job(pod(container(resources=asking(cpu="8"))))),
    ],
    "queue-quota": [
        queued(),
        # Other stacks have what is not here, and nothing is known of it.
        queued(pods=3, without="ml"),
        queued(pods=3, without="slipway"),
    ],
    "queue-share": [
        of_a_team(),
        of_a_team(elsewhere=True),
        # Nothing is taken back from anybody, or nobody lends.
        of_a_team(gpus=1, reclaims="Never"),
        queued(gpus=1, pods=1, preemption={"reclaimWithinCohort": "Any"}),
        # Never let in at all.
        of_a_team(gpus=1, pods=9),
    ],
    "queue-inactive": [
        queued(),
        queued(without="ml"),
        queued(without="slipway"),
        queued(without="namespace", namespaceSelector={"matchLabels": {"team": "vision"}}),
    ],
    "more-nodes-than-room": [
        stack(job(gpu_pod(**APART), **TOGETHER), pools=[pool("t4", gpus=1, max_nodes=2)]),
        stack(job(gpu_pod(**APART))),
        # Each of these can work alone.
        stack(job(gpu_pod(), **TOGETHER)),
        beside(on_four_nodes(cpu="3"), pools=WIDE),
    ],
    "spot-job-on-several-nodes": [
        stack(job(gpu_pod(**APART), **TOGETHER), pools=[pool("t4", gpus=1, max_nodes=2)]),
        stack(job(gpu_pod(**APART)), pools=[pool("t4", gpus=1, spot=True, max_nodes=2)]),
        moved(True, False, sure=[False, True]),
    ],
    "last-place-not-sure": [moved(True, False, sure=[False, True])],
    "more-workers-than-room": [
        stack(job(pod(container(resources=asking(cpu="2"))), parallelism=2, completions=2)),
        stack(job(pod(container(resources=asking(cpu="2"))), parallelism=3, completions=2)),
        beside(worker(pods=7)),
        beside(worker(pods=8), pools=WIDE),
        stack(worker(pods=8), pools=[]),
    ],
    "app-behind-schedule": [nightly(), nightly(reads="shop/train/1a2b")],
    "service-on-spot": [
        beside(pools=[pool("spot", spot=True), pool("cpu")]),
        stack(worker(), pools=[pool("cpu", spot=True)]),
        stack(serving(), pools=[]),
        together(pools=[pool("cpu", spot=True)]),
    ],
    "service-open-to-all": [
        beside(),
        stack(serving(), entrance(), shut("Ingress")),
        # Nothing leads to it by name.
        stack(serving()),
    ],
    "longer-than-login": [
        stack(job(pod(), activeDeadlineSeconds=LOGIN)),
        stack(unawaited(job(pod(), activeDeadlineSeconds=LOGIN + 1))),
        stack(job(pod(), activeDeadlineSeconds=None)),
    ],
    "pod-refused": [restricted(job(pod(HARDENED))), restricted(job(pod()), level="baseline"), in_pod()],
    "open-without-login": [
        stack(ingress(), *login()),
        stack(ingress(**{"nginx.ingress.kubernetes.io/auth-url": "https://login.example.org"})),
        stack(
            ingress(
                tls=False,
                **{
                    "alb.ingress.kubernetes.io/auth-type": "cognito",
                    "alb.ingress.kubernetes.io/certificate-arn": "arn:a:acm:b:1:certificate/c",
                },
            )
        ),
        stack(*by_gateway()),
        stack(route(termination="edge", insecureEdgeTerminationPolicy="Redirect"), *login()),
    ],
}
