"""Apps that people reach from outside: what each cluster declares, who may connect, and what is refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.aws.emulator import Emulator as AwsEmulator
from slipway.infra.clouds.existing.platforms import Emulator as ExistingEmulator
from slipway.infra.clouds.gcp.emulator import Emulator as GcpEmulator
from slipway.infra.emulator import Emulator
from slipway.infra.kubernetes.ingress.login_proxy import image
from slipway.infra.program import declare
from slipway.infra.schema.ingress import IngressSettings, OidcSettings
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from tests.infra.test_apps import PIPELINE, STEPS
from tests.support.checkout import ROOT
from tests.support.clouds import aws, gcp
from tests.support.recording import Recording, is_unknown, record
from tests.support.stack_values import changed

pytestmark = pytest.mark.slow

INGRESS = "kubernetes:networking.k8s.io/v1:Ingress"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
SECRET = "kubernetes:core/v1:Secret"
NAMESPACE = "kubernetes:core/v1:Namespace"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"

HERE: dict[str, Any] = {
    "clusters": {
        "here": {
            "cloud": "existing",
            "kubeconfig": "/nowhere",
            "ingress": {"class_name": "traefik", "namespace": "traefik"},
            "pools": {"cpu": {"selector": {"a": "b"}, "cpu": "8", "memory": "32Gi", "ephemeral_storage": "40Gi"}},
        }
    },
    "store": {"kind": "pvc"},
}
OIDC = {"issuer": "https://login.example.org/realms/ml", "client_id": "digits", "client_secret": "login"}
BY_PROXY = {
    "host": "digits.example.org",
    "tls": {"issuer": "letsencrypt"},
    "login": {"oidc": {**OIDC, "email_domains": ["example.org"]}},
}
BY_IAP = {
    "host": "digits.example.org",
    "tls": {"managed": True},
    "login": {"iap": {"members": ["group:ml@example.org"]}},
}
CERTIFICATE = "arn:aws:acm:us-east-1:000000000000:certificate/1234"
POOL = "arn:aws:cognito-idp:us-east-1:000000000000:userpool/us-east-1_abc"
BY_COGNITO = {
    "host": "digits.example.org",
    "tls": {"certificate": CERTIFICATE},
    "login": {"cognito": {"user_pool": POOL, "client_id": "abc", "domain": "digits"}},
}
ENDPOINTS = {
    f"{entry}_endpoint": f"https://login.example.org/{entry}" for entry in ("authorization", "token", "user_info")
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_pipeline(tmp_path)
    return tmp_path


def write_pipeline(folder: Path) -> None:
    code = folder / "page"
    code.mkdir()
    (code / "page.py").write_text("")
    (folder / "pipeline.py").write_text(PIPELINE % {"code": str(code)})


def values(folder: Path, base: Mapping[str, Any], ingress: Any, **changes: Any) -> dict[str, Any]:
    apps = {"page": {"pool": "cpu", **({"ingress": ingress} if ingress else {})}}
    pipelines = {"tried": {"uses": str(folder), "steps": STEPS, "apps": apps}}
    secrets = {"key": "[secret]", "login": "[secret]"}
    return changed({**base, "secrets": secrets, "pipelines": pipelines}, changes)


class Answering(Emulator):
    """Stands in for the controller that writes into an Ingress where people reach it."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def outputs(self, token: str, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return {**inputs, "id": name, "status": self._status} if token == INGRESS else None


def run(
    folder: Path,
    base: Mapping[str, Any],
    ingress: Any,
    *,
    status: Mapping[str, Any] | None = None,
    preview: bool = False,
    **changes: Any,
) -> Recording:
    result = values(folder, base, ingress, **changes)
    emulator: Any = {"existing": ExistingEmulator, "gcp": GcpEmulator, "aws": AwsEmulator}[
        next(iter(result["clusters"].values()))["cloud"]
    ]
    request = load(result).request
    configuration = {f"slipway:{key}": value for key, value in result.items()} | {
        "gcp:project": "a-project",
        "aws:region": "us-east-1",
    }
    emulators = [*([Answering(status)] if status else []), emulator(request)]
    return record(lambda: declare(ROOT), configuration, preview=preview, emulators=emulators)


def custom(recording: Recording, kind: str) -> Mapping[str, Any]:
    (result,) = [resource for resource in recording.resources if resource.inputs.get("kind") == kind]
    return result.inputs


def policies(recording: Recording) -> dict[str, Any]:
    return {resource.inputs["metadata"]["name"]: resource.inputs["spec"] for resource in recording.of(POLICY)}


def problems(folder: Path, base: Mapping[str, Any], ingress: Any, **changes: Any) -> dict[str, str]:
    with pytest.raises(SettingsError) as error:
        load(values(folder, base, ingress, **changes))
    return {
        problem.key.removeprefix("slipway:pipelines.tried.apps.page."): problem.reason
        for problem in error.value.problems
    }


def test_an_app_without_ingress_is_open_to_nobody(folder: Path) -> None:
    recording = run(folder, HERE, None)
    assert recording.of(INGRESS) == []
    assert not any(resource.inputs.get("kind") in {"Gateway", "Route"} for resource in recording.resources)


def test_elsewhere_an_ingress_leads_to_a_proxy_that_asks_for_the_login(folder: Path) -> None:
    recording = run(folder, HERE, BY_PROXY)
    ingress = recording.one(INGRESS).inputs
    assert ingress["spec"]["ingressClassName"] == "traefik"
    assert ingress["spec"]["tls"] == [{"hosts": ["digits.example.org"], "secretName": "tried-page-tls"}]
    assert ingress["metadata"]["annotations"]["cert-manager.io/cluster-issuer"] == "letsencrypt"
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "digits.example.org"
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "tried-page-login", "port": {"number": 4180}}
    proxy = recording.one(DEPLOYMENT, "tried-page-ingress-login").inputs["spec"]["template"]["spec"]
    (container,) = proxy["containers"]
    assert container["image"] == image()
    assert {
        "--email-domain=example.org",
        "--upstream=http://tried-page:8080/",
        "--oidc-issuer-url=https://login.example.org/realms/ml",
        "--redirect-url=https://digits.example.org/oauth2/callback",
    } <= set(container["args"])
    assert not any("secret" in argument for argument in container["args"])
    assert "serviceAccountName" not in proxy
    assert proxy["automountServiceAccountToken"] is False


def test_only_the_controller_reaches_the_proxy_and_only_the_proxy_the_app(folder: Path) -> None:
    result = policies(run(folder, HERE, BY_PROXY))
    (to_proxy,) = result["tried-page-login"]["ingress"]
    assert to_proxy == {
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "traefik"}}}],
        "ports": [{"port": 4180, "protocol": "TCP"}],
    }
    (to_app,) = result["tried-page-from-login"]["ingress"]
    (peer,) = to_app["from"]
    assert peer["podSelector"] == result["tried-page-login"]["podSelector"]
    assert to_app["ports"] == [{"port": 8080, "protocol": "TCP"}]
    assert result["tried-page-to-app"]["podSelector"] == peer["podSelector"]


def test_the_secret_of_the_login_stands_in_no_other_object(folder: Path) -> None:
    recording = run(folder, HERE, BY_PROXY)
    holding = {
        resource.name
        for resource in recording.resources
        if "[secret]" in json.dumps(resource.inputs, default=str) and not resource.type.startswith("pulumi:")
    }
    assert holding == {"tried-page-given", "tried-page-ingress-login"}
    assert recording.one(SECRET, "tried-page-ingress-login").inputs["stringData"]["client-secret"] == "[secret]"


def test_a_secret_of_ones_own_and_addresses_of_the_nodes(folder: Path) -> None:
    controller = {"class_name": "nginx", "networks": ["10.0.0.0/24"]}
    ingress = changed(BY_PROXY, {"tls": {"secret": "digits-tls"}})
    recording = run(folder, changed(HERE, {"clusters.here.ingress": controller}), ingress)
    made = recording.one(INGRESS).inputs
    assert made["spec"]["tls"][0]["secretName"] == "digits-tls"
    assert "cert-manager.io/cluster-issuer" not in made["metadata"]["annotations"]
    (rule,) = policies(recording)["tried-page-login"]["ingress"]
    assert rule["from"] == [{"ipBlock": {"cidr": "10.0.0.0/24"}}]


def test_openshift_opens_a_route_behind_the_proxy_that_nobody_gets_past_without_tls(folder: Path) -> None:
    base = changed(HERE, {"clusters.here.ingress": None, "clusters.here.openshift": True})
    recording = run(folder, base, changed(BY_PROXY, {"tls": {"managed": True}}))
    route = custom(recording, "Route")["spec"]
    assert route["to"]["name"] == "tried-page-login"
    assert route["tls"] == {"termination": "edge", "insecureEdgeTerminationPolicy": "Redirect"}
    (rule,) = policies(recording)["tried-page-login"]["ingress"]
    (peer,) = rule["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"policy-group.network.openshift.io/ingress": ""}
    proxy = recording.one(DEPLOYMENT, "tried-page-ingress-login").inputs["spec"]["template"]["spec"]
    assert "runAsUser" not in proxy["securityContext"]


def test_on_gke_identity_aware_proxy_lets_the_members_in_at_this_host_alone(folder: Path) -> None:
    recording = run(folder, gcp.BASE, BY_IAP)
    gateway = custom(recording, "Gateway")
    assert gateway["spec"]["gatewayClassName"] == "gke-l7-global-external-managed"
    assert [(listener["protocol"], listener["port"]) for listener in gateway["spec"]["listeners"]] == [
        ("HTTPS", 443)
    ]
    certificates = recording.one("gcp:certificatemanager/certificateMap:CertificateMap").inputs["name"]
    assert gateway["metadata"]["annotations"]["networking.gke.io/certmap"] == certificates
    policy = custom(recording, "GCPBackendPolicy")["spec"]
    assert policy["default"]["iap"] == {"enabled": True}
    assert policy["targetRef"]["name"] == "tried-page"
    grant = recording.one("gcp:iap/webIamMember:WebIamMember").inputs
    assert (grant["role"], grant["member"]) == ("roles/iap.httpsResourceAccessor", "group:ml@example.org")
    assert grant["condition"]["expression"] == 'request.host == "digits.example.org"'
    (rule,) = policies(recording)["tried-page-ingress"]["ingress"]
    assert [entry["ipBlock"]["cidr"] for entry in rule["from"]] == ["35.191.0.0/16", "130.211.0.0/22"]
    (cluster,) = recording.of(gcp.CLUSTER)
    assert cluster.inputs["gatewayApiConfig"] == {"channel": "CHANNEL_STANDARD"}


def test_the_route_of_a_gateway_comes_after_what_guards_it(folder: Path) -> None:
    recording = run(folder, gcp.BASE, BY_IAP)
    (route,) = [resource for resource in recording.resources if resource.inputs.get("kind") == "HTTPRoute"]
    (policy,) = [resource for resource in recording.resources if resource.inputs.get("kind") == "GCPBackendPolicy"]
    assert policy.urn in recording.waits_for(route)


def drained(recording: Recording, name: str) -> tuple[int, int]:
    """Seconds that a pod goes on to answer, and those that it has in all."""
    pod = recording.one(DEPLOYMENT, name).inputs["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return container["lifecycle"]["preStop"]["sleep"]["seconds"], pod["terminationGracePeriodSeconds"]


def test_what_a_load_balancer_connects_to_answers_until_it_has_learnt_of_the_end(folder: Path) -> None:
    by_load_balancer = run(folder, gcp.BASE, BY_IAP)
    assert drained(by_load_balancer, "tried-page") == (40, 70)
    login = {"oidc": {**OIDC, "email_domains": ["example.org"]}}
    by_proxy = run(folder, gcp.BASE, {**BY_IAP, "login": login})
    assert drained(by_proxy, "tried-page-ingress-login") == (40, 70)
    assert drained(by_proxy, "tried-page") == (5, 35)
    of_the_cluster = run(folder, HERE, BY_PROXY)
    assert drained(of_the_cluster, "tried-page-ingress-login") == drained(of_the_cluster, "tried-page") == (5, 35)


def test_an_oauth_client_of_ones_own_has_a_secret_with_one_key(folder: Path) -> None:
    iap = {"members": ["user:ada@example.org"], "client_id": "1-a.apps", "client_secret": "login"}
    recording = run(folder, gcp.BASE, changed(BY_IAP, {"login": {"iap": iap}}))
    assert custom(recording, "GCPBackendPolicy")["spec"]["default"]["iap"] == {
        "enabled": True,
        "clientID": "1-a.apps",
        "oauth2ClientSecret": {"name": "tried-page-iap"},
    }
    assert recording.one(SECRET, "tried-page-ingress-iap").inputs["stringData"] == {"client_secret": "[secret]"}


def test_on_gke_without_an_app_to_open_nothing_changes(folder: Path) -> None:
    recording = run(folder, gcp.BASE, None)
    (cluster,) = recording.of(gcp.CLUSTER)
    assert "gatewayApiConfig" not in cluster.inputs
    assert not any(
        "certificatemanager" in resource.type or "iap" in resource.type for resource in recording.resources
    )
    services = {resource.inputs["service"] for resource in recording.of("gcp:projects/service:Service")}
    assert "iap.googleapis.com" not in services


def test_on_gke_no_policy_moves_from_the_app_to_the_proxy_when_the_login_becomes_another(folder: Path) -> None:
    """One that moved would leave the app's Service open until its route has moved, too."""

    def guarded(ingress: Any) -> dict[str, str]:
        result = run(folder, gcp.BASE, ingress).resources
        kinds = ("GCPBackendPolicy", "HealthCheckPolicy")
        return {
            resource.urn: resource.inputs["spec"]["targetRef"]["name"]
            for resource in result
            if resource.inputs.get("kind") in kinds
        }

    by_iap, by_oidc = guarded(BY_IAP), guarded({**BY_PROXY, "tls": {"managed": True}})
    assert set(by_iap.values()) == {"tried-page"}
    assert set(by_oidc.values()) == {"tried-page-login"}
    assert by_iap.keys().isdisjoint(by_oidc)


def test_on_gke_another_host_keeps_the_address_and_takes_a_certificate_of_another_name(folder: Path) -> None:
    address, certificate, entry = (
        "gcp:compute/globalAddress:GlobalAddress",
        "gcp:certificatemanager/certificate:Certificate",
        "gcp:certificatemanager/certificateMapEntry:CertificateMapEntry",
    )
    one, other = (run(folder, gcp.BASE, {**BY_IAP, "host": f"{entry}.example.org"}) for entry in ("one", "other"))
    assert one.one(address).inputs == other.one(address).inputs
    for type_ in (certificate, entry):
        # Google has one of a name, and the new one is made before the old one goes.
        assert one.one(type_).inputs["name"] != other.one(type_).inputs["name"]


def test_pods_of_a_step_that_is_called_like_the_proxy_are_none_of_its(folder: Path) -> None:
    (to_app,) = policies(run(folder, HERE, BY_PROXY))["tried-page-from-login"]["ingress"]
    (peer,) = to_app["from"]
    assert peer["podSelector"]["matchLabels"]["slipway/login"] == "page"


def test_an_app_that_would_have_the_objects_of_the_proxy_is_refused(folder: Path) -> None:
    declaration = folder / "pipeline.py"
    said = declaration.read_text()
    declaration.write_text(said.replace('"model", "Model"', '"page-login", "Model"').replace('["model"]', "[]"))
    result = values(folder, HERE, BY_PROXY)
    result["pipelines"]["tried"]["apps"]["model"] = {"pool": "cpu"}
    with pytest.raises(SettingsError) as error:
        load(result)
    reasons = [problem.reason for problem in error.value.problems]
    assert any(
        "the proxy that asks for its login, app `page`, has objects called `tried-page-login`, like app "
        "`page-login` of pipeline `tried`" in reason
        for reason in reasons
    )


def test_an_issuer_is_known_however_its_host_is_written() -> None:
    oidc = OidcSettings.model_validate({**OIDC, "issuer": "https://Accounts.Google.com/", "everyone": True})
    assert oidc.public


def test_with_domains_and_groups_people_are_said_to_need_both() -> None:
    both = {**OIDC, "email_domains": ["example.org"], "groups": ["ml"]}
    login = IngressSettings.model_validate({**BY_PROXY, "login": {"oidc": both}}).login
    assert login.people == "everybody @example.org who are of group ml"


def told(recording: Recording) -> tuple[str, list[str]]:
    """The address of the page, and what is left to do, as the stack's outputs have them."""
    shown = recording.exports["tried"]
    assert shown["apps"]["page"] == "make open APP=tried.page STACK=test"
    return shown["addresses"]["page"], shown["to_do"]["page"]


def test_an_app_that_is_opened_to_nobody_has_no_address_in_the_outputs(folder: Path) -> None:
    assert {"addresses", "to_do"}.isdisjoint(run(folder, HERE, None).exports["tried"])


def test_on_gke_the_outputs_say_the_address_and_the_record_to_make(folder: Path) -> None:
    address, to_do = told(run(folder, gcp.BASE, BY_IAP))
    assert address == "https://digits.example.org/draw"
    record, certificate = to_do
    assert record.endswith("digits.example.org, which is for you to make: A 203.0.113.20")
    assert "up to an hour" in certificate


def test_an_oauth_client_of_ones_own_has_to_know_its_callback(folder: Path) -> None:
    iap = {"members": ["user:ada@example.org"], "client_id": "1-a.apps", "client_secret": "login"}
    _, to_do = told(run(folder, gcp.BASE, changed(BY_IAP, {"login": {"iap": iap}})))
    assert to_do[-1].endswith("1-a.apps: https://iap.googleapis.com/v1/oauth/clientIds/1-a.apps:handleRedirect")


def test_on_eks_the_record_is_that_of_the_load_balancer_once_it_says_its_name(folder: Path) -> None:
    name = "k8s-tried-page-0123.us-east-1.elb.amazonaws.com"
    result = run(folder, aws.BASE, BY_COGNITO, status={"loadBalancer": {"ingress": [{"hostname": name}]}})
    address, (record, callback) = told(result)
    assert address == "https://digits.example.org/draw"
    assert record.endswith(f": CNAME {name}")
    assert callback.endswith("the client abc: https://digits.example.org/oauth2/idpresponse")
    _, (record, _) = told(run(folder, aws.BASE, BY_COGNITO))
    assert "kubectl get ingress tried-page" in record


def test_elsewhere_the_record_is_that_of_the_controller(folder: Path) -> None:
    _, (record, certificate, callback) = told(run(folder, HERE, BY_PROXY))
    assert record.endswith("the address of the controller of the class traefik")
    assert "letsencrypt" in certificate
    assert callback.endswith("the client digits: https://digits.example.org/oauth2/callback")
    _, (record, *_) = told(
        run(folder, HERE, BY_PROXY, status={"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}})
    )
    assert record.endswith(": A 203.0.113.7")


def test_what_only_an_update_can_tell_is_unknown_in_a_preview_and_no_reason_to_fail(folder: Path) -> None:
    shown = run(folder, aws.BASE, BY_COGNITO, preview=True).exports["tried"]
    assert shown["addresses"]["page"] == "https://digits.example.org/draw"
    assert is_unknown(shown["to_do"]["page"][0])


def annotation(recording: Recording, name: str) -> Any:
    return recording.one(INGRESS).inputs["metadata"]["annotations"].get(f"alb.ingress.kubernetes.io/{name}")


def test_on_eks_nobody_waits_for_the_load_balancer_of_an_app_that_waits(folder: Path) -> None:
    declaration = folder / "pipeline.py"
    declaration.write_text(declaration.read_text().replace('after=["check"]', 'inputs={"train": "train"}'))
    recording = run(folder, aws.BASE, BY_COGNITO, **{"pipelines.tried.runs": "cluster"})
    for kind in (INGRESS, DEPLOYMENT):
        assert "pulumi.com/waitFor" in recording.one(kind).inputs["metadata"]["annotations"]
    page = recording.one(DEPLOYMENT).inputs["spec"]["template"]["spec"]
    assert [container["name"] for container in page["initContainers"]] == ["waits"]
    # Pulumi does not know its address yet, and the output says where it stands.
    (record_, *_) = recording.exports["tried"]["to_do"]["page"]
    assert "kubectl get ingress" in record_


def test_an_app_after_a_step_without_a_result_cannot_wait_by_itself(folder: Path) -> None:
    refusals = problems(folder, aws.BASE, BY_COGNITO, **{"pipelines.tried.runs": "cluster"})
    assert "check" in refusals["slipway:pipelines.tried.apps.page"]


def test_on_eks_the_load_balancer_asks_cognito(folder: Path) -> None:
    recording = run(folder, aws.BASE, BY_COGNITO)
    assert recording.one(INGRESS).inputs["spec"]["ingressClassName"] == "alb"
    assert annotation(recording, "certificate-arn") == CERTIFICATE
    assert annotation(recording, "listen-ports") == '[{"HTTPS":443}]'
    assert annotation(recording, "auth-type") == "cognito"
    assert json.loads(annotation(recording, "auth-idp-cognito"))["userPoolARN"] == POOL
    assert annotation(recording, "auth-on-unauthenticated-request") == "authenticate"
    release = recording.one(aws.RELEASE, "dev-load-balancers")
    assert release.urn in recording.waits_for(recording.one(INGRESS))
    (rule,) = policies(recording)["tried-page-ingress"]["ingress"]
    public = {
        resource.inputs["cidrBlock"]
        for resource in recording.of("aws:ec2/subnet:Subnet")
        if "public" in resource.name
    }
    assert {entry["ipBlock"]["cidr"] for entry in rule["from"]} == public


def test_on_eks_new_pods_are_ready_once_the_load_balancer_knows_them(folder: Path) -> None:
    recording = run(folder, aws.BASE, BY_COGNITO)
    label = "elbv2.k8s.aws/pod-readiness-gate-inject"
    assert recording.one(NAMESPACE, "dev-namespace").inputs["metadata"]["labels"][label] == "enabled"
    # Jobs start in the namespace while the controller is away.
    chart = recording.one(aws.RELEASE, "dev-load-balancers").inputs["values"]
    assert chart["podMutatorWebhookConfig"] == {"failurePolicy": "Ignore"}
    assert label not in run(folder, aws.BASE, None).one(NAMESPACE, "dev-namespace").inputs["metadata"]["labels"]
    assert drained(recording, "tried-page") == (40, 70)


def test_on_eks_the_controller_reads_the_one_secret_of_the_login(folder: Path) -> None:
    login = {"oidc": {**OIDC, **ENDPOINTS, "everyone": True}}
    recording = run(folder, aws.BASE, changed(BY_COGNITO, {"login": login}))
    provider = json.loads(annotation(recording, "auth-idp-oidc"))
    assert provider["secretName"] == "tried-page-oidc"
    assert set(recording.one(SECRET, "tried-page-ingress-oidc").inputs["stringData"]) == {
        "clientID",
        "clientSecret",
    }
    (rule,) = recording.one("kubernetes:rbac.authorization.k8s.io/v1:Role", "tried-page-ingress-oidc").inputs[
        "rules"
    ]
    assert rule["resourceNames"] == ["tried-page-oidc"]


def test_on_eks_who_gets_in_is_decided_by_a_proxy_where_the_load_balancer_cannot(folder: Path) -> None:
    login = {"oidc": {**OIDC, **ENDPOINTS, "groups": ["ml"]}}
    recording = run(folder, aws.BASE, changed(BY_COGNITO, {"login": login}))
    assert annotation(recording, "auth-type") is None
    path = recording.one(INGRESS).inputs["spec"]["rules"][0]["http"]["paths"][0]
    assert path["backend"]["service"]["name"] == "tried-page-login"
    assert annotation(recording, "healthcheck-path") == "/ping"


@pytest.mark.parametrize(
    ("base", "ingress", "entries"),
    [
        (HERE, None, None),
        # Each appends whom it talks to; Google's load balancer appends its own address, too.
        (aws.BASE, BY_COGNITO, "1"),
        (aws.BASE, changed(BY_COGNITO, {"login": {"oidc": {**OIDC, "groups": ["ml"]}}}), "2"),
        (HERE, BY_PROXY, "2"),
        (gcp.BASE, BY_IAP, "2"),
        (gcp.BASE, changed(BY_IAP, {"login": BY_PROXY["login"]}), "3"),
    ],
)
def test_an_app_is_told_where_visitors_addresses_stand(
    folder: Path, base: dict[str, Any], ingress: Any, entries: str | None
) -> None:
    """With a wrong count, all visitors would share the rate of one."""
    pods = run(folder, base, ingress).one(DEPLOYMENT, "tried-page").inputs["spec"]["template"]["spec"]
    environment = {variable["name"]: variable.get("value") for variable in pods["containers"][0]["env"]}
    assert environment.get("SLIPWAY_PROXIES") == entries
    assert environment.get("SLIPWAY_HOSTS") == (ingress and ingress["host"])


def test_on_eks_without_an_app_to_open_there_is_no_controller(folder: Path) -> None:
    recording = run(folder, aws.BASE, None)
    assert "dev-load-balancers" not in {resource.name for resource in recording.resources}


@pytest.mark.parametrize("key", ["tls", "login"])
def test_an_app_with_a_host_alone_is_refused(folder: Path, key: str) -> None:
    refused = problems(folder, HERE, {name: value for name, value in BY_PROXY.items() if name != key})
    assert refused == {f"ingress.{key}": "required, and not there"}
    empty = problems(folder, HERE, {**BY_PROXY, key: {}})
    assert "nothing is opened without TLS and a login" in empty[f"ingress.{key}"]


@pytest.mark.parametrize(
    ("changes", "key", "reason"),
    [
        ({"host": "https://digits.example.org/"}, "host", "an address"),
        ({"host": "10.0.0.1"}, "host", "no name that a certificate"),
        ({"tls": {"secret": "a", "issuer": "b"}}, "tls", "one of them has to say it"),
        ({"tls": {"managed": True}}, "tls", "a certificate of a cloud's load balancer"),
        ({"login.oidc.issuer": "http://login.example.org"}, "login.oidc.issuer", "not by HTTPS"),
        ({"login.oidc.email_domains": ["*"]}, "login.oidc.email_domains[0]", "every address"),
        ({"login.oidc.email_domains": []}, "login.oidc", "does not say who gets in"),
        ({"login.oidc.everyone": True}, "login.oidc.everyone", "say who gets in, too"),
        (
            {"login.oidc": {**OIDC, "issuer": "https://accounts.google.com", "everyone": True}},
            "login.oidc.everyone",
            "keeps nobody out",
        ),
        ({"login": {"iap": {"members": ["allUsers"]}}}, "login.iap.members[0]", "everybody in the world"),
        ({"login": {"iap": {"members": ["user:ada@example.org"]}}}, "login.iap", "a login of a cloud"),
        ({"login.oidc.token_endpoint": "https://login.example.org/t"}, "login.oidc", "are missing beside it"),
    ],
)
def test_what_would_let_everybody_in_or_cannot_work_is_refused(
    folder: Path, changes: dict[str, Any], key: str, reason: str
) -> None:
    refused = problems(folder, HERE, changed(BY_PROXY, changes))
    assert reason in refused[f"ingress.{key}"]


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"login": {"iap": {"members": ["allUsers"]}}}, {"login.iap.members[0]"}),
        ({"login.oidc.issuer": "http://login.example.org"}, {"login.oidc.issuer"}),
        ({"tls": {"certificate": "arn"}}, {"tls.certificate"}),
        ({"host": "nb", "tls": {}, "login": {}}, {"host", "tls", "login"}),
    ],
)
def test_each_mistake_is_said_once_and_all_of_them_at_once(
    folder: Path, changes: dict[str, Any], keys: set[str]
) -> None:
    refused = problems(folder, HERE, changed(BY_PROXY, changes))
    assert set(refused) == {f"ingress.{key}" for key in keys}


@pytest.mark.parametrize(
    "pasted", ["GOCSPX-aBcDeFgHiJkLmNoPqRsTuVwXyZ01", "0123456789abcdef0123456789abcdef", "Login"]
)
def test_a_secret_in_place_of_its_name_is_refused_and_not_shown(folder: Path, pasted: str) -> None:
    ingress = changed(BY_PROXY, {"login.oidc.client_secret": pasted})
    with pytest.raises(SettingsError) as error:
        load(values(folder, HERE, ingress))
    assert pasted not in str(error.value)
    [problem] = error.value.problems
    assert problem.key.endswith("login.oidc.client_secret")
    assert "pulumi config set --secret --path 'slipway:secrets.page-login'" in problem.fix


def test_a_login_whose_secret_is_not_set_is_refused(folder: Path) -> None:
    ingress = changed(BY_PROXY, {"login.oidc.client_secret": "other"})
    assert "not set" in problems(folder, HERE, ingress)["slipway:secrets.other"]


def test_a_cluster_without_a_way_in_is_refused(folder: Path) -> None:
    base = changed(HERE, {"clusters.here.ingress": None})
    assert "nothing is known of the cluster" in problems(folder, base, BY_PROXY)["ingress"]


def test_each_cloud_refuses_the_login_and_the_certificate_of_another(folder: Path) -> None:
    assert set(problems(folder, gcp.BASE, BY_COGNITO)) == {"ingress.tls", "ingress.login.cognito"}
    assert set(problems(folder, aws.BASE, BY_IAP)) == {"ingress.tls", "ingress.login.iap"}
    elsewhere = changed(BY_COGNITO, {"tls.certificate": CERTIFICATE.replace("us-east-1", "eu-west-1")})
    assert set(problems(folder, aws.BASE, elsewhere)) == {"ingress.tls.certificate"}
