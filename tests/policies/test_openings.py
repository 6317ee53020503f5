"""What is said of an update that opens something to people outside the cluster, or takes it away from them."""

import json
from datetime import date

import pytest

from slipway.evaluated.model import Finding
from slipway.evaluated.operations import compare_resources
from slipway.infra.clouds.registry import reviews
from slipway.infra.review.contract import reviewed
from slipway.infra.review.stack import Resource
from slipway.policies.changes import Change
from slipway.policies.check import check, check_change
from slipway.policies.openings import BALANCER
from slipway.policies.security import POLICIES
from tests.policies.cases import by_gateway, ingress, login, route
from tests.policies.samples import resource, stack


def found(before: list[Resource], after: list[Resource]) -> list[Finding]:
    old, new = (reviewed(stack(*each), reviews()) for each in (before, after))
    findings, _ = check_change(Change(old, new, compare_resources(old, new)), {}, date(2026, 11, 22))
    return [finding for finding in findings if finding.policy == "opens-to-people"]


def test_what_is_opened_says_where_to_whom_and_by_which_tls() -> None:
    [finding] = found([], [ingress(), *login()])
    assert finding.harm
    assert finding.reason == (
        "opens https://page.example.org to everybody @example.org at https://login.example.org; "
        "TLS by the Secret page"
    )


def test_what_is_opened_without_a_login_says_so() -> None:
    [finding] = found([], [route()])
    assert finding.reason == "opens http://page.example.org to WITHOUT A LOGIN; WITHOUT TLS"


def test_a_login_that_lets_others_in_says_who_it_was_before() -> None:
    others = login(args=["--oidc-issuer-url=https://login.example.org", "--email-domain=*"])
    [finding] = found([ingress(), *login()], [ingress(), *others])
    assert "opens https://page.example.org to everybody with an account at" in finding.reason
    assert "until now it was https://page.example.org to everybody @example.org" in finding.reason


def test_an_update_that_changes_nothing_of_it_says_nothing() -> None:
    assert found([ingress(), *login()], [ingress(), *login()]) == []


def test_what_goes_is_taken_away_from_those_who_used_it() -> None:
    [finding] = found(by_gateway(), [])
    assert finding.reason.startswith(
        "takes https://page.example.org away from people whom Identity-Aware Proxy lets in"
    )


def test_another_client_of_identity_aware_proxy_is_named() -> None:
    [finding] = found(by_gateway(), by_gateway(client="another"))
    assert "as the client another" in finding.reason


def test_services_that_are_open_by_themselves_are_found_too() -> None:
    for kind in ("LoadBalancer", "NodePort"):
        service = resource(
            "kubernetes:core/v1:Service", "page", {"metadata": {"name": "page"}, "spec": {"type": kind}}
        )
        findings, _ = check(stack(service), {}, date(2026, 11, 22))
        assert {finding.policy for finding in findings} & {policy.id for policy in POLICIES}


POOL, OTHER = (f"arn:aws:cognito-idp:us-east-1:111111111111:userpool/{name}" for name in ("team", "everybody"))


@pytest.mark.parametrize(
    ("kind", "before", "after", "who"),
    [
        ("cognito", {"userPoolARN": POOL}, {"userPoolARN": OTHER}, OTHER),
        (
            "cognito",
            {"userPoolARN": POOL, "userPoolClientID": "a"},
            {"userPoolARN": POOL, "userPoolClientID": "b"},
            "b",
        ),
        ("oidc", {"issuer": "https://a.example"}, {"issuer": "https://b.example"}, "https://b.example"),
    ],
)
def test_another_login_of_a_load_balancer_says_whose_people_come_in(
    kind: str, before: dict[str, str], after: dict[str, str], who: str
) -> None:
    old, new = (
        ingress(tls=True, **{f"{BALANCER}auth-type": kind, f"{BALANCER}auth-idp-{kind}": json.dumps(each)})
        for each in (before, after)
    )
    [finding] = found([old], [new])
    assert finding.harm
    opened, _, earlier = finding.reason.partition("until now")
    assert who in opened
    assert next(iter(before.values())) in earlier
