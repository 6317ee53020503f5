"""How people get at an app from outside the cluster: by HTTPS alone, and after a login."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from slipway.infra.schema.base import Cidr, Model, refuse
from slipway.infra.schema.names import DNS_SUBDOMAIN, SUBDOMAIN_LIMIT, ObjectName
from slipway.infra.schema.secret_values import NAME_OF_SECRET

Login = Literal["iap", "oidc", "cognito"]
"""Who asks people who they are: Google's Identity-Aware Proxy, an OpenID Connect provider, or Amazon Cognito."""

Certificate = Literal["managed", "acm", "secret", "issuer"]
"""Where a certificate comes from: the cloud, a named one of AWS Certificate Manager, a Secret, or cert-manager."""

ISSUERS = Path(__file__).parents[1] / "data" / "public-issuers.toml"


@cache
def public_issuers() -> Mapping[str, str]:
    """Issuers at which anybody can have an account, without `https://`, and why their login keeps nobody out."""
    return tomllib.loads(ISSUERS.read_text(encoding="utf-8"))


def _host(value: str) -> str:
    example = "write a name such as `digits.example.org`"
    if "://" in value or "/" in value:
        raise refuse("an address, and it has to be a host name", example)
    if not DNS_SUBDOMAIN.fullmatch(value) or len(value) > SUBDOMAIN_LIMIT:
        raise refuse("no host name: small letters, digits, hyphens and dots", example)
    if "." not in value or re.fullmatch(r"[0-9.]+", value):
        raise refuse("no name that a certificate can be for", example)
    return value


Host = Annotated[str, AfterValidator(_host)]
"""The name of a host, as a certificate has it."""


def _https(value: str) -> str:
    example = "write its address as it publishes it: `https://login.example.org`"
    try:
        parts = urlsplit(value)
    except ValueError:
        raise refuse("no address", example) from None
    if not parts.hostname or not value.isprintable() or " " in value:
        raise refuse("no address", example)
    if parts.scheme != "https":
        raise refuse("not by HTTPS, so that whoever is between could let anybody in", example)
    if parts.username or parts.query or parts.fragment:
        raise refuse("it has more than a host and a path", example)
    return value


HttpsUrl = Annotated[str, AfterValidator(_https)]
"""An address by HTTPS."""

MEMBER_KINDS = ("user", "group", "domain", "serviceAccount")


def _member(value: str) -> str:
    kind, _, name = value.partition(":")
    example = "write `user:ada@example.org`, `group:team@example.org` or `domain:example.org`"
    if value in {"allUsers", "allAuthenticatedUsers"}:
        raise refuse("everybody in the world, so that the login keeps nobody out", example)
    if kind not in MEMBER_KINDS or not re.fullmatch(r"[^\s@:]+(@[^\s@:]+)?", name):
        raise refuse("no principal that can log in", example)
    return value


Member = Annotated[str, AfterValidator(_member)]
"""A principal of Google Cloud that stands for people, or a service account."""


def _domain(value: str) -> str:
    if value == "*":
        raise refuse("every address", "write the domains, or `everyone: true`")
    if not DNS_SUBDOMAIN.fullmatch(value) or "." not in value:
        raise refuse("no domain of e-mail addresses", "write what stands behind the `@`: `example.org`")
    return value


Domain = Annotated[str, AfterValidator(_domain)]
"""What stands behind the ``@`` of e-mail addresses."""


def _one_word(value: str) -> str:
    if not value or not value.isprintable() or any(character in value for character in " ,\"'\\"):
        raise refuse("empty, or with spaces, commas or quotes", "write it as the provider shows it")
    return value


Word = Annotated[str, AfterValidator(_one_word)]
"""A text without spaces, commas or quotes."""


def _name_of_secret(value: str) -> str:
    if not NAME_OF_SECRET.fullmatch(value):
        raise refuse(
            "not the name of a secret: up to 40 small letters and digits, in words of at most 20 with hyphens",
            "write a name such as `page-login`, and set the secret with `pulumi config set --secret --path "
            "'slipway:secrets.page-login'`; where the secret itself stands here, withdraw it",
        )
    return value


SecretName = Annotated[str, AfterValidator(_name_of_secret)]
"""The name of one of `slipway:secrets`, so written that it cannot be the secret itself."""


def _arn(service: str, resource: str, example: str) -> AfterValidator:
    pattern = re.compile(rf"arn:[a-z-]+:{service}:(?P<region>[a-z0-9-]+):[0-9]{{12}}:{resource}/[\w.-]+")

    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise refuse("not the ARN of one", f"write `{example}`")
        return value

    return AfterValidator(check)


CertificateArn = Annotated[
    str, _arn("acm", "certificate", "arn:<partition>:acm:<region>:<account>:certificate/<id>")
]
UserPoolArn = Annotated[
    str, _arn("cognito-idp", "userpool", "arn:<partition>:cognito-idp:<region>:<account>:userpool/<id>")
]


class OneOf(Model):
    """A section of which exactly one of the keys in ``choices`` is there."""

    choices: ClassVar[tuple[str, ...]]

    @property
    def chosen(self) -> tuple[str, ...]:
        """Those of ``choices`` that are there."""
        return tuple(choice for choice in self.choices if getattr(self, choice))


class TlsSettings(OneOf):
    """The certificate of an app's host, of which one key says where it comes from."""

    choices: ClassVar[tuple[str, ...]] = ("managed", "certificate", "secret", "issuer")

    managed: bool = Field(
        default=False,
        description="The cloud issues and renews it for its load balancer; a router of OpenShift has one for its "
        "own domain.",
    )
    certificate: CertificateArn | None = Field(
        default=None, description="One that the cloud has already, in the cluster's region, by its ARN."
    )
    secret: ObjectName | None = Field(
        default=None,
        description="A Secret of the type `kubernetes.io/tls`, which is in the namespace and somebody else's.",
    )
    issuer: ObjectName | None = Field(
        default=None, description="A ClusterIssuer of cert-manager, which issues and renews it."
    )

    @cached_property
    def kind(self) -> Certificate | None:
        """Where it comes from; None where not exactly one key says so."""
        kinds: dict[str, Certificate] = {"managed": "managed", "certificate": "acm", "secret": "secret"}
        (one,) = self.chosen if len(self.chosen) == 1 else ("",)
        return kinds.get(one, "issuer") if one else None


class IapSettings(Model):
    """Google's Identity-Aware Proxy."""

    members: list[Member] = Field(
        min_length=1,
        description="Who gets in: `user:ada@example.org`, `group:team@example.org`, `domain:example.org`.",
    )
    client_id: Word | None = Field(
        default=None,
        description="An OAuth client of your own, for people outside of the project's organization; default: the "
        "cloud's, for its people alone.",
    )
    client_secret: SecretName | None = Field(
        default=None, description="Its secret, by the name that it has in `slipway:secrets`."
    )


class OidcSettings(Model):
    """A provider that speaks OpenID Connect: Keycloak, Dex, Okta, Entra ID, Google, GitLab. With both domains and
    groups, people get in who are of both.
    """

    issuer: HttpsUrl = Field(description="The provider's issuer: `https://login.example.org/realms/ml`.")
    client_id: Word = Field(description="The client that the provider knows the app as.")
    client_secret: SecretName = Field(
        description="The client's secret, by the name that it has in `slipway:secrets`: never the secret itself."
    )
    email_domains: list[Domain] = Field(
        default_factory=list[str],
        description="Who gets in: people whose e-mail address is of one of these domains.",
    )
    groups: list[Word] = Field(
        default_factory=list[str],
        description="Who gets in: people of one of these groups, as the claim `groups` has them.",
    )
    everyone: bool = Field(
        default=False,
        description="Whoever the provider lets in gets in. Refused for providers at which anybody can have an "
        "account.",
    )
    authorization_endpoint: HttpsUrl | None = Field(
        default=None,
        description="Of the provider's `/.well-known/openid-configuration`. With it, the next two and `everyone`, "
        "a load balancer that can asks people itself; default: a proxy does.",
    )
    token_endpoint: HttpsUrl | None = Field(default=None, description="Where it gives tokens; likewise.")
    user_info_endpoint: HttpsUrl | None = Field(
        default=None, description="Where it says who somebody is; likewise."
    )

    @property
    def limited(self) -> bool:
        """Whether it says who of those that can log in gets in."""
        return bool(self.email_domains or self.groups)

    @property
    def public(self) -> str | None:
        """Why anybody in the world can log in there; None where nothing is known that says so."""
        # Host names have no case; these issuers write their paths in small letters.
        place = self.issuer.lower().removeprefix("https://").rstrip("/")
        return next((why for issuer, why in public_issuers().items() if place in (issuer, f"{issuer}/v2.0")), None)

    @property
    def endpoints(self) -> bool:
        """Whether it says all that a load balancer of AWS has to know of the provider."""
        return bool(self.authorization_endpoint and self.token_endpoint and self.user_info_endpoint)


class CognitoSettings(Model):
    """A user pool of Amazon Cognito. All of its users get in."""

    user_pool: UserPoolArn = Field(description="The user pool, by its ARN.")
    client_id: Word = Field(
        description="The app client of the pool, which has a secret and the callback of the host."
    )
    domain: Word = Field(description="The pool's domain: its prefix, or the whole name where it is your own.")


class LoginSettings(OneOf):
    """Who asks people who they are, and whom it lets in. One of the keys has to be there."""

    choices: ClassVar[tuple[str, ...]] = ("iap", "oidc", "cognito")

    iap: IapSettings | None = Field(default=None, description="Identity-Aware Proxy, where the cloud has it.")
    oidc: OidcSettings | None = Field(
        default=None,
        description="A provider that speaks OpenID Connect, which a proxy in the cluster asks; or a load balancer "
        "that can.",
    )
    cognito: CognitoSettings | None = Field(
        default=None, description="A user pool of Cognito, where the cloud has it."
    )

    @cached_property
    def kind(self) -> Login | None:
        """Which it is; None where not exactly one key says so."""
        kinds: dict[str, Login] = {"iap": "iap", "oidc": "oidc", "cognito": "cognito"}
        (one,) = self.chosen if len(self.chosen) == 1 else ("",)
        return kinds.get(one)

    @property
    def secret(self) -> str | None:
        """The name in `slipway:secrets` of what it needs; None where it needs nothing."""
        if self.oidc:
            return self.oidc.client_secret
        return self.iap.client_secret if self.iap else None

    @property
    def people(self) -> str:
        """Who gets in, in words."""
        if self.iap:
            return ", ".join(self.iap.members)
        if self.cognito:
            return f"every user of {self.cognito.user_pool.rpartition('/')[2]}"
        if self.oidc is None:
            return "nobody"
        domains = [f"everybody @{email_domain}" for email_domain in self.oidc.email_domains]
        groups = [f"group {group}" for group in self.oidc.groups]
        # With both, the proxy asks for both.
        parts = [", ".join(words) for words in (domains, groups) if words]
        return " who are of ".join(parts) or f"everybody with an account at {self.oidc.issuer}"


class IngressSettings(Model):
    """How people reach an app from outside the cluster. Nothing is public without both TLS and a login."""

    host: Host = Field(description="The host name at which people reach it: `digits.example.org`.")
    tls: TlsSettings = Field(
        description="The certificate of the host, from one of `managed`, `certificate`, `secret` and `issuer`. No "
        "app is opened without one."
    )
    login: LoginSettings = Field(
        description="Who gets in, by one of `iap`, `oidc` and `cognito`. No app is opened without a login."
    )


class ControllerSettings(Model):
    """What carries out Ingress objects in a cluster that is already there."""

    class_name: ObjectName = Field(description="Its IngressClass by name: `traefik`, `haproxy`, `nginx`.")
    namespace: ObjectName | None = Field(
        default=None,
        description="The namespace of its pods, which alone may connect to what asks people to log in.",
    )
    networks: list[Cidr] = Field(
        default_factory=list[str],
        description="In place of `namespace`, where its pods use their nodes' network: the addresses that they "
        "connect from.",
    )
