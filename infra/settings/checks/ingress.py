"""Apps that people reach from outside the cluster: one certificate, one login that keeps others out, one host."""

from collections.abc import Collection, Iterator, Mapping

from infra.schema.ingress import IapSettings, IngressSettings, OidcSettings, OneOf
from infra.schema.problems import Finding, Path, listed
from infra.schema.request import Exposed
from infra.settings.checks.pipelines import pools_of
from infra.settings.checks.stack import missing_secret
from infra.settings.parsing import Reading
from infra.settings.pipelines import KEY, apps_if_any, exposed, services_if_any, steps_if_any

BOTH = "nothing is opened without TLS and a login"


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the `ingress` of each app by itself, and about two with one host."""
    first: dict[str, str] = {}
    clusters = {name: str(at[1]) for name, (at, _) in pools_of(reading.draft).items()}
    for app in exposed(reading.draft.pipelines):
        yield from _one((*app.at, "tls"), app.ingress.tls, "a certificate")
        yield from _one((*app.at, "login"), app.ingress.login, "a login")
        yield from _login(app.at, app.ingress)
        yield from _secret(app, reading.draft.secrets)
        yield from _host(app, first)
        yield from _other_stack(app, reading, clusters)
    yield from _names(reading)


def _one(at: Path, section: OneOf, what: str) -> Iterator[Finding]:
    choices = listed(section.choices)
    if not section.chosen:
        yield Finding(at, None, f"{what} is missing, and {BOTH}", f"write one of {choices}", all_of=(at,))
    elif len(section.chosen) > 1:
        reason = f"{listed(section.chosen, 'and')} are there, and one of them has to say it"
        yield Finding(at, None, reason, f"leave one of {choices}")


def _login(at: Path, ingress: IngressSettings) -> Iterator[Finding]:
    login = ingress.login
    if login.oidc:
        yield from _oidc((*at, "login", "oidc"), login.oidc)
    if login.iap:
        yield from _iap((*at, "login", "iap"), login.iap)


def _oidc(at: Path, oidc: OidcSettings) -> Iterator[Finding]:
    who = "write `email_domains` or `groups`"
    if oidc.everyone and oidc.public:
        yield Finding(
            (*at, "everyone"),
            oidc.everyone,
            f"{oidc.public}, so that the login keeps nobody out",
            f"{who} in its place",
            read=((*at, "issuer"),),
        )
    elif oidc.everyone and oidc.limited:
        yield Finding(
            (*at, "everyone"),
            oidc.everyone,
            "`email_domains` or `groups` say who gets in, too",
            "remove one of them",
            read=((*at, "email_domains"), (*at, "groups")),
        )
    elif not oidc.everyone and not oidc.limited:
        yield Finding(
            at,
            None,
            "it does not say who gets in of those that can log in",
            f"{who}; or `everyone: true`, where only people who may get in have an account there",
            read=((*at, "everyone"), (*at, "email_domains"), (*at, "groups")),
        )
    endpoints = ("authorization_endpoint", "token_endpoint", "user_info_endpoint")
    given = [endpoint for endpoint in endpoints if getattr(oidc, endpoint)]
    if given and not oidc.endpoints:
        missing = [endpoint for endpoint in endpoints if endpoint not in given]
        yield Finding(at, None, f"{listed(missing, 'and')} are missing beside it", "write all three, or none")


def _iap(at: Path, iap: IapSettings) -> Iterator[Finding]:
    if (iap.client_id is None) != (iap.client_secret is None):
        given, missing = ("client_id", "client_secret") if iap.client_id else ("client_secret", "client_id")
        reason = f"`{given}` is there without `{missing}`, and a client has both"
        yield Finding((*at, given), getattr(iap, given), reason, f"write `{missing}`, or remove it")


def _secret(app: Exposed, secrets: Collection[str]) -> Iterator[Finding]:
    secret = app.ingress.login.secret
    if secret is not None and secret not in secrets:
        read = tuple((*app.at, "login", kind, "client_secret") for kind in ("oidc", "iap"))
        yield missing_secret(secret, f"the login of `{app.name}` needs it", secrets, read=read)


def _host(app: Exposed, first: dict[str, str]) -> Iterator[Finding]:
    host = app.ingress.host
    other = first.setdefault(host, app.name)
    if other != app.name:
        reason = f"`{other}` has it already, and a host leads to one app"
        yield Finding((*app.at, "host"), host, reason, "give it a host of its own")


def _names(reading: Reading) -> Iterator[Finding]:
    """Apps, services and steps on several nodes whose objects would have the names of what stands beside an app.

    The cluster takes the last of two objects of one name, so that people could be led past the login.
    """
    draft = reading.draft
    owners: dict[str, str] = {}
    for name, settings in draft.pipelines.items():
        groups = [step for step in steps_if_any(name, settings) if step.nodes]
        named = (apps_if_any(name, settings), services_if_any(name, settings), groups)
        for what, programs in zip(("app", "service", "step"), named, strict=True):
            owners.update(
                {f"{name}-{program.name}": f"{what} `{program.name}` of pipeline `{name}`" for program in programs}
            )
    for name, settings in draft.pipelines.items():
        for app in apps_if_any(name, settings):
            ingress = app.placed_by.ingress
            beside = {
                **({"login": "the proxy that asks for its login"} if ingress and ingress.login.oidc else {}),
                **({"idle": "what stops it when nobody uses it"} if app.idle else {}),
            }
            for word, what in beside.items():
                if other := owners.get(f"{name}-{app.name}-{word}"):
                    yield Finding(
                        (KEY, name),
                        None,
                        f"{what}, app `{app.name}`, has objects called `{name}-{app.name}-{word}`, like {other}",
                        "give one of the two another name",
                    )


def _other_stack(app: Exposed, reading: Reading, clusters: Mapping[str, str]) -> Iterator[Finding]:
    name = clusters.get(app.pool)
    cluster = reading.draft.clusters.get(name) if name else None
    if cluster is not None and cluster.other_stack:
        yield Finding(
            app.at,
            None,
            f"cluster `{name}` is that of stack `{cluster.other_stack}`, and who has a cluster decides what of it "
            "is open to the outside",
            "remove it, and use the port-forward command of the stack's outputs",
            read=(("clusters", str(name), "cloud"),),
        )
