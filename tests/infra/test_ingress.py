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
from slipway.infra.schema.ingress import OidcSettings
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from tests.infra.test_apps import STEPS, write
from tests.support.checkout import ROOT
from tests.support.clouds import aws, gcp
from tests.support.recording import Recording, is_unknown, record
from tests.support.stack_values import changed

pytestmark = pytest.mark.slow

INGRESS = "kubernetes:networking.k8s.io/v1:Ingress"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
SECRET = "kubernetes:core/v1:Secret"
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
GKE, EKS = (
    changed(base, {"clusters.dev.ingress": HERE["clusters"]["here"]["ingress"]}) for base in (gcp.BASE, aws.BASE)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path)


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


@pytest.mark.parametrize("base", [HERE, GKE, EKS])
def test_an_ingress_leads_to_a_proxy_that_asks_for_the_login(folder: Path, base: dict[str, Any]) -> None:
    recording = run(folder, base, BY_PROXY)
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
        if "[secret]" in json.dumps(resource.inputs, default=str)
        and not resource.type.startswith("pulumi:")
        # The program that masks secrets has the word.
        and not resource.name.endswith("-bundle")
    }
    assert holding == {"tried-page-given", "tried-page-ingress-login"}
    login = recording.one(SECRET, "tried-page-ingress-login").inputs["stringData"]
    assert login["client-secret"] == "[secret]"


def test_a_secret_of_ones_own_and_addresses_of_the_nodes(folder: Path) -> None:
    controller = {"class_name": "nginx", "networks": ["10.0.0.0/24"]}
    ingress = changed(BY_PROXY, {"tls": {"secret": "digits-tls"}})
    recording = run(folder, changed(HERE, {"clusters.here.ingress": controller}), ingress)
    made = recording.one(INGRESS).inputs
    assert made["spec"]["tls"][0]["secretName"] == "digits-tls"
    assert "cert-manager.io/cluster-issuer" not in made["metadata"]["annotations"]
    (rule,) = policies(recording)["tried-page-login"]["ingress"]
    assert rule["from"] == [{"ipBlock": {"cidr": "10.0.0.0/24"}}]


def test_pods_of_a_step_that_is_called_like_the_proxy_are_none_of_its(folder: Path) -> None:
    (to_app,) = policies(run(folder, HERE, BY_PROXY))["tried-page-from-login"]["ingress"]
    (peer,) = to_app["from"]
    assert peer["podSelector"]["matchLabels"]["slipway/login"] == "page"


def test_an_app_that_would_have_the_objects_of_the_proxy_is_refused(folder: Path) -> None:
    file = folder / "pipeline.yaml"
    file.write_text(file.read_text().replace('"model": {', '"page-login": {'))
    result = values(folder, HERE, BY_PROXY)
    result["pipelines"]["tried"]["apps"]["page-login"] = {"pool": "cpu"}
    with pytest.raises(SettingsError) as error:
        load(result)
    reasons = [problem.reason for problem in error.value.problems]
    assert any(
        "the proxy that asks for the login of app `page` has objects called `tried-page-login`, like app "
        "`page-login` of pipeline `tried`" in reason
        for reason in reasons
    )


def test_an_issuer_is_known_however_its_host_is_written() -> None:
    oidc = OidcSettings.model_validate({**OIDC, "issuer": "https://Accounts.Google.com/", "everyone": True})
    assert oidc.public


def told(recording: Recording) -> tuple[str, list[str]]:
    """The address of the page, and what is left to do, as the stack's outputs have them."""
    shown = recording.exports["tried"]
    assert shown["apps"]["page"] == "make open APP=tried.page STACK=test"
    return shown["addresses"]["page"], shown["to_do"]["page"]


def test_an_app_that_is_opened_to_nobody_has_no_address_in_the_outputs(folder: Path) -> None:
    assert {"addresses", "to_do"}.isdisjoint(run(folder, HERE, None).exports["tried"])


def test_the_record_is_that_of_the_controller(folder: Path) -> None:
    _, (record, certificate, callback) = told(run(folder, HERE, BY_PROXY))
    assert record.endswith("the address of the controller of the class traefik")
    assert "letsencrypt" in certificate
    assert callback.endswith("the client digits: https://digits.example.org/oauth2/callback")
    _, (record, *_) = told(
        run(folder, HERE, BY_PROXY, status={"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}})
    )
    assert record.endswith(": A 203.0.113.7")


def test_what_only_an_update_can_tell_is_unknown_in_a_preview_and_no_reason_to_fail(folder: Path) -> None:
    shown = run(folder, EKS, BY_PROXY, preview=True).exports["tried"]
    assert shown["addresses"]["page"] == "https://digits.example.org/draw"
    assert is_unknown(shown["to_do"]["page"][0])


@pytest.mark.parametrize(
    ("base", "ingress", "entries"),
    [
        (HERE, None, None),
        # The controller and the proxy each append whom they talk to.
        (HERE, BY_PROXY, "2"),
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


@pytest.mark.parametrize("key", ["tls", "login"])
def test_an_app_with_a_host_alone_is_refused(folder: Path, key: str) -> None:
    refused = problems(folder, HERE, {name: value for name, value in BY_PROXY.items() if name != key})
    assert refused == {f"ingress.{key}": "required, and not there"}
    assert f"ingress.{key}" in "".join(problems(folder, HERE, {**BY_PROXY, key: {}}))


@pytest.mark.parametrize(
    ("changes", "key", "reason"),
    [
        ({"host": "https://digits.example.org/"}, "host", "an address"),
        ({"host": "10.0.0.1"}, "host", "no name that a certificate"),
        ({"tls": {"secret": "a", "issuer": "b"}}, "tls", "one of them has to say it"),
        ({"tls": {"managed": True}}, "tls.managed", "removed in 0.1"),
        ({"login.oidc.issuer": "http://login.example.org"}, "login.oidc.issuer", "not by HTTPS"),
        ({"login.oidc.email_domains": ["*"]}, "login.oidc.email_domains[0]", "every address"),
        ({"login.oidc.email_domains": []}, "login.oidc", "does not say who gets in"),
        ({"login.oidc.everyone": True}, "login.oidc.everyone", "say who gets in, too"),
        (
            {"login.oidc": {**OIDC, "issuer": "https://accounts.google.com", "everyone": True}},
            "login.oidc.everyone",
            "keeps nobody out",
        ),
        ({"login": {"iap": {"members": ["user:ada@example.org"]}}}, "login.iap", "removed in 0.1"),
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
        ({"login": {"iap": {"members": ["allUsers"]}}}, {"login.iap", "login.oidc"}),
        ({"login.oidc.issuer": "http://login.example.org"}, {"login.oidc.issuer"}),
        ({"tls": {"certificate": "arn"}}, {"tls.certificate"}),
        ({"tls": {}, "login.oidc.email_domains": []}, {"tls", "login.oidc"}),
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


@pytest.mark.parametrize("base", [changed(HERE, {"clusters.here.ingress": None}), gcp.BASE, aws.BASE])
def test_a_cluster_without_a_way_in_is_refused(folder: Path, base: dict[str, Any]) -> None:
    assert "nothing is known of the cluster" in problems(folder, base, BY_PROXY)["ingress"]


def test_a_controller_that_could_be_anywhere_is_refused(folder: Path) -> None:
    base = changed(GKE, {"clusters.dev.ingress": {"class_name": "traefik"}})
    assert "every pod of the cluster" in problems(folder, base, BY_PROXY)["slipway:clusters.dev.ingress"]
