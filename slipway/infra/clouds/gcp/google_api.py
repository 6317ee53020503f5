"""Google Cloud's APIs over plain HTTPS, as whoever `pulumi up` would sign in as.

The SDK of the Pulumi provider cannot ask anything outside an update. Credentials are looked for where the provider
does (github.com/hashicorp/terraform-provider-google, website/docs/guides/provider_reference.html.markdown, seen
November 2026), without any call of the gcloud CLI.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from slipway.infra.clouds.gcp import nodes
from slipway.infra.clouds.gcp.catalogue import region_of, regions
from slipway.infra.clouds.gcp.review import ALL_REGIONS, SPOT_CPUS
from slipway.infra.clouds.gcp.settings import ExistingGcsStore
from slipway.infra.review.facts import Observation, Probe, Quota, fine, unknown, wrong
from slipway.infra.review.stack import Stack, at, is_true, items, mapping, mappings, text, texts
from slipway.infra.schema.request import Request

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# google-auth and requests have no types of their own.


ADDRESS = "https://{host}/{path}"
LOGIN = "gcloud auth application-default login"

METADATA = "http://metadata.google.internal"
"""The server that gives machines on Google Cloud their credentials."""

TIMEOUTS = (3, 15)
"""Seconds to wait for a connection and for an answer."""

METADATA_TIMEOUT = 1

SCOPE = "https://www.googleapis.com/auth/cloud-platform"

CREDENTIALS = ("gcp:accessToken", "gcp:credentials")
"""Keys of a stack's configuration with credentials."""

TOKENS = ("GOOGLE_OAUTH_ACCESS_TOKEN",)
KEYS = ("GOOGLE_CREDENTIALS", "GOOGLE_CLOUD_KEYFILE_JSON", "GCLOUD_KEYFILE_JSON")
DEFAULT = "GOOGLE_APPLICATION_CREDENTIALS"
"""Environment variables with credentials, in the order in which the provider takes them."""


class NoCredentialsError(Exception):
    """There are no credentials, or they cannot be used; the text says why."""


class UnreachableError(Exception):
    """Google cannot be asked from this machine; the text says why."""


class RefusedError(Exception):
    """An answer other than 200.

    ``status`` is that of HTTP, ``reason`` what Google calls it (``SERVICE_DISABLED``, empty without one), and
    ``service`` the API that it is about.
    """

    def __init__(self, status: int, words: str, reason: str = "", service: str = "") -> None:
        super().__init__(words)
        self.status, self.reason, self.service = status, reason, service


@dataclass(frozen=True)
class Google:
    """Asks Google's APIs. ``session`` signs in; ``source`` says with what, for people."""

    session: Any
    source: str

    def sign_in(self) -> None:
        """Gets a token where there is none that holds. Raises NoCredentialsError, UnreachableError."""
        from google.auth import exceptions  # noqa: PLC0415
        from google.auth.transport.requests import Request as TokenRequest  # noqa: PLC0415

        credentials = self.session.credentials
        if credentials.valid:
            return
        try:
            credentials.refresh(TokenRequest())
        except (exceptions.RefreshError, exceptions.MalformedError) as error:
            raise _not_signed_in(error, self.source) from error
        except (exceptions.GoogleAuthError, OSError) as error:
            raise UnreachableError(f"Google's sign-in cannot be reached ({type(error).__name__})") from error

    def get(self, host: str, path: str, **query: str) -> Mapping[str, Any]:
        """The answer to a GET. Raises NoCredentialsError, UnreachableError, RefusedError."""
        return self._ask("GET", host, path, params=query)

    def post(self, host: str, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to a POST, of those that change nothing. Raises as `get`."""
        return self._ask("POST", host, path, json=body)

    def _ask(self, method: str, host: str, path: str, **options: Any) -> Mapping[str, Any]:
        from google.auth import exceptions  # noqa: PLC0415
        from requests import RequestException  # noqa: PLC0415

        try:
            answer = self.session.request(
                method, ADDRESS.format(host=host, path=path), timeout=TIMEOUTS, **options
            )
        except (exceptions.RefreshError, exceptions.MalformedError) as error:
            raise _not_signed_in(error, self.source) from error
        except (exceptions.GoogleAuthError, RequestException) as error:
            raise UnreachableError(f"{host} cannot be reached ({type(error).__name__})") from error
        try:
            content = mapping(answer.json())
        except ValueError:
            content = {}
        if answer.status_code != 200:
            raise _refusal(answer.status_code, mapping(content.get("error")))
        return content


def _refusal(status: int, error: Mapping[str, Any]) -> RefusedError:
    """As https://google.aip.dev/193 has errors."""
    info = next((detail for detail in map(mapping, items(error.get("details"))) if detail.get("reason")), {})
    service = text(mapping(info.get("metadata")).get("service"))
    return RefusedError(status, text(error.get("message")) or str(status), text(info.get("reason")), service)


def signed_in(configuration: Mapping[str, Any]) -> Google:
    """Google as ``configuration`` and this machine sign in. Raises NoCredentialsError, UnreachableError."""
    # Imported here: it takes a third of a second, and only stacks on Google Cloud need it.
    from google.auth.transport.requests import AuthorizedSession  # noqa: PLC0415

    credentials, source = _credentials(configuration)
    return Google(AuthorizedSession(credentials, refresh_timeout=TIMEOUTS[1]), source)


_signing_in = Lock()


def of_stack(stack: Stack) -> Google:
    """Google, signed in to; one session for all stacks that sign in alike.

    Raises NoCredentialsError, UnreachableError.
    """
    usable = {key: stack.configuration[key] for key in CREDENTIALS if key in stack.configuration}
    with _signing_in:
        google = signed_in(usable) if usable else signed_in_by_default()
        google.sign_in()
    return google


@cache
def signed_in_by_default() -> Google:
    """As the variables and files of this machine say, looked for once."""
    return signed_in({})


def pass_on(observations: Iterator[Observation], subject: str) -> Iterator[Observation]:
    """``observations``; where Google does not answer, that ``subject`` is unknown."""
    try:
        yield from observations
    except (RefusedError, UnreachableError, NoCredentialsError) as error:
        yield unknown(subject, f"could not be told: {error}")


def _credentials(configuration: Mapping[str, Any]) -> tuple[Any, str]:
    from google.oauth2.credentials import Credentials  # noqa: PLC0415

    for name in CREDENTIALS:
        if configuration.get(name) and not isinstance(configuration[name], str):
            raise NoCredentialsError(f"{name} is encrypted, and only the Pulumi CLI opens it")
    for name in TOKENS:
        if token := text(configuration.get("gcp:accessToken")) or os.environ.get(name):
            return Credentials(token), name
    for name in KEYS:
        if key := text(configuration.get("gcp:credentials")) or os.environ.get(name):
            return _of_key(key, name), name
    if named := os.environ.get(DEFAULT):
        return _of_file(Path(named), f"{DEFAULT}={named}"), named
    if (file := gcloud_folder() / "application_default_credentials.json").is_file():
        return _of_file(file, str(file)), str(file)
    if _on_google_cloud():
        from google.auth import compute_engine  # noqa: PLC0415

        return compute_engine.Credentials(scopes=[SCOPE]), "the machine's service account"
    raise NoCredentialsError(f"there is no {_home(file)}, no {DEFAULT}, and this is no machine on Google Cloud")


def _of_key(key: str, name: str) -> Any:
    """Credentials from the text of a key, or the path of its file."""
    if not key.lstrip().startswith("{"):
        return _of_file(Path(key).expanduser(), name)
    from google.auth import load_credentials_from_dict  # noqa: PLC0415
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

    try:
        return load_credentials_from_dict(json.loads(key), scopes=[SCOPE])[0]
    except (GoogleAuthError, ValueError) as error:
        raise _not_signed_in(error, name) from error


def _of_file(file: Path, name: str) -> Any:
    from google.auth import load_credentials_from_file  # noqa: PLC0415
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

    try:
        return load_credentials_from_file(str(file), scopes=[SCOPE])[0]
    except (GoogleAuthError, ValueError, OSError) as error:
        raise _not_signed_in(error, name) from error


def gcloud_folder() -> Path:
    """Where the gcloud CLI keeps what it knows."""
    return Path(os.environ.get("CLOUDSDK_CONFIG") or Path("~/.config/gcloud").expanduser())


def _on_google_cloud() -> bool:
    import requests  # noqa: PLC0415

    try:
        answer = requests.get(METADATA, timeout=METADATA_TIMEOUT)
    except requests.RequestException:
        return False
    return answer.headers.get("Metadata-Flavor") == "Google"


def _not_signed_in(error: BaseException, source: str) -> Exception:
    """Why a sign-in failed: google-auth tells some that never reached Google as if Google had refused them."""
    from google.auth.exceptions import TransportError  # noqa: PLC0415
    from requests import RequestException  # noqa: PLC0415

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TransportError | RequestException):
            return UnreachableError(f"Google's sign-in cannot be reached ({type(cause).__name__})")
        cause = cause.__cause__ or cause.__context__
    return NoCredentialsError(f"{source}: {_first(error)}")


def _first(error: BaseException) -> str:
    """The first words of an error: google-auth adds the whole answer as a second argument."""
    return " ".join(str(error.args[0] if error.args else error).split())


def _home(file: Path) -> str:
    return str(file).replace(str(Path.home()), "~", 1)


SUBJECT = "quotas"
FORM = "https://console.cloud.google.com/iam-admin/quotas?project={project}"


def quotas(google: Google, stack: Stack, project: str) -> Iterator[Observation]:
    """Whether what is left of each quota is enough for every pool at its largest.

    Raises UnreachableError, NoCredentialsError. A refused request is an observation.
    """
    left = 0
    places: dict[str, Mapping[str, tuple[float, float]]] = {}
    for quota in stack.quotas:
        if not quota.known:
            yield unknown(SUBJECT, f"no source says which quota counts {_describe(quota)}", quota.see)
            continue
        try:
            limit, usage = standing(google, project, quota, places)
        except RefusedError as error:
            if error.reason == "SERVICE_DISABLED":
                reason = f"{error.service or 'its API'} is not switched on in `{project}` yet"
                on = f"gcloud services enable {error.service} --project {project}" if error.service else quota.see
                yield unknown(SUBJECT, f"could not be read: {reason}", on)
                return
            yield unknown(SUBJECT, f"{_describe(quota)} could not be read: {error}", quota.see)
            continue
        except LookupError:
            yield unknown(SUBJECT, f"{_describe(quota)} is in no answer of Google", quota.see)
            continue
        if limit - usage < quota.needed:
            used = f", of which {usage:g} are used" if usage else ""
            yield wrong(
                SUBJECT,
                f"{_describe(quota)} is {limit:g} {quota.unit}{used}; the stack needs up to {quota.needed:g}",
                f"open {FORM.format(project=project)}",
            )
        else:
            left += 1
    if left:
        yield fine(SUBJECT, f"{left} of {len(stack.quotas)} have room for every pool at its largest")


def _describe(quota: Quota) -> str:
    return f"{quota.metric} ({quota.where})"


def standing(
    google: Google, project: str, quota: Quota, places: dict[str, Mapping[str, tuple[float, float]]]
) -> tuple[float, float]:
    """Limit and use of a quota. Raises LookupError where no answer has it, and what Google raises."""
    name, _, family = quota.metric.partition(", ")
    if family:
        return _of_family(google, project, quota.where, name, family), 0
    if quota.where not in places:
        path = f"compute/v1/projects/{project}"
        if quota.where != ALL_REGIONS:
            path += f"/regions/{quota.where}"
        # https://cloud.google.com/compute/docs/reference/rest/v1/regions/get and projects/get, November 2026.
        answer = google.get("compute.googleapis.com", path, fields="quotas")
        places[quota.where] = {
            text(entry.get("metric")): (float(entry.get("limit") or 0), float(entry.get("usage") or 0))
            for entry in mappings(answer.get("quotas"))
        }
    limits = places[quota.where]
    # A project without a quota of its own for Spot counts Spot vCPUs with the others (data/quotas.toml).
    if name == SPOT_CPUS and not limits.get(name, (0, 0))[0] and "CPUS" in limits:
        return limits["CPUS"]
    return limits[name]


def _of_family(google: Google, project: str, region: str, name: str, family: str) -> float:
    """The limit of one family of GPUs or machines in a region.

    Source: https://cloud.google.com/docs/quotas/reference/rest/v1/projects.locations.services.quotaInfos/get,
    November 2026. Entries come from the most special to the most general.
    """
    path = f"v1/projects/{project}/locations/global/services/compute.googleapis.com/quotaInfos/{name}"
    answer = google.get("cloudquotas.googleapis.com", path)
    for dimensions_info in mappings(answer.get("dimensionsInfos")):
        dimensions = {"region": region, "gpu_family": family, "vm_family": family}
        if all(dimensions.get(key) == value for key, value in mapping(dimensions_info.get("dimensions")).items()):
            return float(text(mapping(dimensions_info.get("details")).get("value")) or 0)
    raise LookupError(name)


# Source of the answers: https://cloud.google.com/storage/docs/json_api/v1/buckets, seen November 2026.
BUCKET = "the store's bucket"

INPUTS = "bucket of inputs"

STORAGE = "storage.googleapis.com"

OF_OLD_VERSIONS = frozenset({"numNewerVersions", "daysSinceNoncurrentTime", "noncurrentTimeBefore"})
"""Conditions of a lifecycle rule that hold for old versions alone."""

EVERYONE = frozenset({"allUsers", "allAuthenticatedUsers"})

GRANTING: Mapping[str, Sequence[str]] = {
    "roles/storage.legacyBucketOwner": ("storage.buckets.getIamPolicy", "storage.buckets.setIamPolicy")
}
"""What whoever runs `pulumi up` needs on a bucket to add the grants of the stack's pods, by roles that have it
(cloud.google.com/storage/docs/access-control/iam-roles, seen November 2026)."""

NEEDED: Mapping[str, Sequence[str]] = {
    **GRANTING,
    "roles/storage.objectViewer": ("storage.objects.list", "storage.objects.get"),
}
"""The same of the store's bucket, whose results are read, too."""


@dataclass(frozen=True)
class _Bucket:
    """A bucket, what it is for, how Google is asked about it, and what Google says of it."""

    name: str
    subject: str
    google: Google
    properties: Mapping[str, Any]


_BucketCheck = Callable[[_Bucket], Iterable[Observation]]


def bucket_probes(stack: Stack, request: Request) -> Iterator[Probe]:
    """What is checked of the buckets that the stack does not create. Those without grants of the stack's are their
    owners' alone.
    """
    if isinstance(store := request.store, ExistingGcsStore):
        check = partial(_check_store, stack, store)
        yield Probe(
            BUCKET, partial(_ask_of_bucket, stack, BUCKET, store.bucket, check, "there, and closed to strangers")
        )
    folders: dict[str, set[str]] = {}
    for access in request.inputs:
        if access.data.grants:
            folders.setdefault(access.data.bucket, set()).add(access.data.folder)
    for name, below in folders.items():
        check = partial(_check_inputs, stack, below)
        yield Probe(
            INPUTS, partial(_ask_of_bucket, stack, INPUTS, name, check, "there, and takes grants of the stack's")
        )


def _ask_of_bucket(stack: Stack, subject: str, name: str, check: _BucketCheck, good: str) -> Iterator[Observation]:
    see = _see_bucket(name)
    try:
        google = of_stack(stack)
        bucket = _Bucket(name, subject, google, google.get(STORAGE, f"storage/v1/b/{name}"))
    except (NoCredentialsError, UnreachableError) as error:
        yield unknown(subject, f"`{name}` was not asked for: {error}", see)
    except RefusedError as error:
        # Google answers the same for a bucket that is not there and for one that the user may not see.
        reason = "is not there, or you may not see it" if error.status in {403, 404} else "could not be read"
        yield wrong(subject, f"`{name}` {reason} ({error})", see)
    else:
        yield from list(check(bucket)) or [fine(subject, f"`{name}` is {good}")]


def _check_store(stack: Stack, store: ExistingGcsStore, bucket: _Bucket) -> Iterator[Observation]:
    yield from _losses(store, bucket)
    if bucket.properties.get("retentionPolicy"):
        reason = "has a retention policy: Jobs could neither replace nor rename a file"
        yield wrong(BUCKET, f"`{bucket.name}` {reason}", _see_bucket(bucket.name), "Take another bucket")
    yield from _hindrances(bucket, of_folder=bool(store.root))
    yield from _distances(stack, bucket, "Take a bucket in {region}, or put the cluster in {location}")
    purpose = "`pulumi up` adds the grants of the stack's pods there, and reads their results"
    yield from pass_on(_granting(bucket, NEEDED, purpose, "The bucket's owner has to run it"), BUCKET)
    if not _is_uniform(bucket):
        yield _not_uniform(bucket, "Google refuses a grant on one folder there, and a single object can be public")
    yield from pass_on(_strangers(bucket), BUCKET)


def _check_inputs(stack: Stack, folders: set[str], bucket: _Bucket) -> Iterator[Observation]:
    of_folder = "" not in folders
    yield from _hindrances(bucket, of_folder=of_folder)
    yield from _distances(stack, bucket, "Copy the data into a bucket in {region}")
    purpose = "`pulumi up` adds the grants of the stack's pods there"
    advice = "The bucket's owner has to run it, or grants by hand what the pods need: then write `grants: false`"
    yield from pass_on(_granting(bucket, GRANTING, purpose, advice), INPUTS)
    if of_folder and not _is_uniform(bucket):
        yield _not_uniform(bucket, "Google refuses a grant on one folder there")


def _see_bucket(bucket: str) -> str:
    return f"gcloud storage buckets describe gs://{bucket}"


def _is_uniform(bucket: _Bucket) -> bool:
    return is_true(at(bucket.properties, "iamConfiguration", "uniformBucketLevelAccess", "enabled"))


def _not_uniform(bucket: _Bucket, why: str) -> Observation:
    return wrong(
        bucket.subject,
        f"`{bucket.name}` has no uniform access: {why}",
        f"gcloud storage buckets update gs://{bucket.name} --uniform-bucket-level-access",
        "Its owner decides: from then on ACLs of objects let nobody in any more",
    )


def _strangers(bucket: _Bucket) -> Iterator[Observation]:
    """Whether the bucket lets everyone in; `publicAccessPrevention` overrides both of the ways in."""
    if at(bucket.properties, "iamConfiguration", "publicAccessPrevention") == "enforced":
        return
    policy = bucket.google.get(STORAGE, f"storage/v1/b/{bucket.name}/iam", optionsRequestedPolicyVersion="3")
    for binding in mappings(policy.get("bindings")):
        for member in sorted(EVERYONE & set(texts(binding.get("members")))):
            role = text(binding.get("role"))
            yield wrong(
                BUCKET,
                f"`{bucket.name}` is public: {member} has {role} on it, and would on all results",
                f"gcloud storage buckets remove-iam-policy-binding gs://{bucket.name} --member={member} "
                f"--role={role}",
            )


def _losses(store: ExistingGcsStore, bucket: _Bucket) -> Iterator[Observation]:
    """Rules of the bucket that delete what Jobs write."""
    for rule in mappings(at(bucket.properties, "lifecycle", "rule")):
        condition = mapping(rule.get("condition"))
        prefixes, folder = texts(condition.get("matchesPrefix")), f"{store.root}/" if store.root else ""
        meets = not prefixes or any(folder.startswith(prefix) or prefix.startswith(folder) for prefix in prefixes)
        only_old = condition.get("isLive") is False or OF_OLD_VERSIONS & condition.keys()
        if at(rule, "action", "type") == "Delete" and meets and not only_old:
            words = ", ".join(f"{name}: {value}" for name, value in sorted(condition.items()))
            yield wrong(
                BUCKET,
                f"a lifecycle rule of `{bucket.name}` deletes objects ({words}), results of Jobs included",
                _see_bucket(bucket.name),
                "Take another bucket, or have its owner leave the folder out of the rule",
            )


def _hindrances(bucket: _Bucket, *, of_folder: bool) -> Iterator[Observation]:
    """Settings of the bucket with which pods cannot mount it, or perhaps not one of its folders."""
    if at(bucket.properties, "billing", "requesterPays"):
        reason = "lets the requester pay, which mounts do not do"
        yield wrong(bucket.subject, f"`{bucket.name}` {reason}", _see_bucket(bucket.name), "Take another bucket")
    if of_folder and is_true(at(bucket.properties, "hierarchicalNamespace", "enabled")):
        yield unknown(
            bucket.subject,
            f"`{bucket.name}` has a hierarchical namespace: whether a grant on the objects of one folder is "
            "enough to mount it is seen in `pulumi up`, by its first Job",
        )


def _distances(stack: Stack, bucket: _Bucket, advice: str) -> Iterator[Observation]:
    location = text(bucket.properties.get("location")).lower()
    # Others are of several regions, whose names the catalogue does not have.
    if location not in regions():
        return
    for cluster in stack.of_type(nodes.CLUSTER):
        region = region_of(text(cluster.properties.get("location")))
        if region != location:
            yield wrong(
                bucket.subject,
                f"`{bucket.name}` is in {location} and the cluster {stack.called(cluster)} in {region}: what its "
                f"pods read{' and write' if bucket.subject == BUCKET else ''} crosses regions, which is slow and "
                "billed by the GiB",
                _see_bucket(bucket.name),
                advice.format(region=region, location=location),
            )


def _granting(
    bucket: _Bucket, needed: Mapping[str, Sequence[str]], purpose: str, advice: str
) -> Iterator[Observation]:
    query = "&".join(f"permissions={name}" for permissions in needed.values() for name in permissions)
    answer = bucket.google.get(STORAGE, f"storage/v1/b/{bucket.name}/iam/testPermissions?{query}")
    for role, permissions in needed.items():
        if missing := [name for name in permissions if name not in texts(answer.get("permissions"))]:
            yield wrong(
                bucket.subject,
                f"you lack {' and '.join(missing)} on `{bucket.name}`: {purpose}",
                f"gcloud storage buckets add-iam-policy-binding gs://{bucket.name} --member=user:<you> "
                f"--role={role}",
                advice,
            )
