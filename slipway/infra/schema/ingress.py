"""How people get at an app from outside the cluster: by HTTPS alone, and after a login."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from slipway.infra.platform import IngressController
from slipway.infra.schema.base import Cidr, ClusterSettings, Model, refuse
from slipway.infra.schema.names import DNS_SUBDOMAIN, SUBDOMAIN_LIMIT, ObjectName
from slipway.infra.schema.renamed import Removed
from slipway.infra.schema.secret_values import NAME_OF_SECRET

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


class TlsSettings(Model):
    """The certificate of an app's host, of which one key says where it comes from."""

    removed: ClassVar[Mapping[str, Removed]] = dict.fromkeys(
        ("managed", "certificate"),
        Removed("write `issuer`, a ClusterIssuer of cert-manager, or `secret`, a Secret of the namespace"),
    )

    secret: ObjectName | None = Field(
        default=None,
        description="A Secret of the type `kubernetes.io/tls`, which is in the namespace and somebody else's.",
    )
    issuer: ObjectName | None = Field(
        default=None, description="A ClusterIssuer of cert-manager, which issues and renews it."
    )


class OidcSettings(Model):
    """A provider that speaks OpenID Connect: Keycloak, Dex, Okta, Entra ID, Google, GitLab, Cognito. With both
    domains and groups, people get in who are of both.
    """

    removed: ClassVar[Mapping[str, Removed]] = dict.fromkeys(
        ("authorization_endpoint", "token_endpoint", "user_info_endpoint"),
        Removed("remove it: the proxy reads it from the issuer"),
    )

    issuer: HttpsUrl = Field(description="The provider's issuer: `https://login.example.org/realms/ml`.")
    client_id: Word = Field(description="The client that the provider knows the app as.")
    client_secret: SecretName = Field(
        description="The client's secret, by the name that it has in `slipway:secrets`: never the secret itself."
    )
    email_domains: list[Domain] = Field(
        default_factory=list[str],
        description="Domains of the e-mail addresses of people who get in.",
    )
    groups: list[Word] = Field(
        default_factory=list[str],
        description="Groups whose people get in, as the claim `groups` has them.",
    )
    everyone: bool = Field(
        default=False,
        description="Whoever the provider lets in gets in. Refused for providers at which anybody can have an "
        "account.",
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


class LoginSettings(Model):
    """Who asks people who they are, and whom it lets in."""

    removed: ClassVar[Mapping[str, Removed]] = dict.fromkeys(
        ("iap", "cognito"),
        Removed(
            "write `oidc`, which a proxy in the cluster asks; the same people log in by their provider's issuer"
        ),
    )

    oidc: OidcSettings = Field(
        description="A provider that speaks OpenID Connect, which a proxy in the cluster asks."
    )


class IngressSettings(Model):
    """How people reach an app from outside the cluster. Nothing is public without both TLS and a login."""

    host: Host = Field(description="The host name at which people reach it: `digits.example.org`.")
    tls: TlsSettings = Field(
        description="The certificate of the host, from one of `secret` and `issuer`. No app is opened without one."
    )
    login: LoginSettings = Field(description="Who gets in. No app is opened without a login.")


class ControllerSettings(Model):
    """What carries out Ingress objects in a cluster, and is none of the stack's."""

    class_name: ObjectName = Field(description="Its IngressClass by name: `traefik`, `haproxy`, `nginx`.")
    namespace: ObjectName | None = Field(
        default=None,
        description="The namespace of its pods, which alone may connect to what asks people to log in.",
    )
    networks: list[Cidr] = Field(
        default_factory=list[str],
        description="Where its pods use their nodes' network, in place of `namespace`: the addresses that they "
        "connect from.",
    )


class ReachableCluster(ClusterSettings):
    """A cluster whose apps people may reach from outside."""

    ingress: ControllerSettings | None = Field(
        default=None,
        description="What carries out Ingress objects, for apps that people reach from outside. Default: nothing.",
    )

    @property
    def ingress_controller(self) -> IngressController | None:
        """The same, as the cluster's platform has it."""
        said = self.ingress
        return IngressController(said.class_name, said.namespace, said.networks) if said else None
