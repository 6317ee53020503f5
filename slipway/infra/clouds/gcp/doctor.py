"""What Google says of a stack before its first `pulumi up`, and today of accelerators: their prices and zones."""

import os
import re
import shutil
import sqlite3
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from slipway.infra.accelerators import TIMEOUTS, AcceleratorFiles, Prices, RefreshError
from slipway.infra.clouds.gcp import nodes
from slipway.infra.clouds.gcp.catalogue import is_zone, regions
from slipway.infra.clouds.gcp.google_api import (
    LOGIN,
    Google,
    NoCredentialsError,
    RefusedError,
    UnreachableError,
    bucket_probes,
    gcloud_folder,
    of_stack,
    pass_on,
    quotas,
    signed_in,
    standing,
)
from slipway.infra.clouds.gcp.rules import PROJECT_VARIABLES, no_project
from slipway.infra.review.facts import STACK, Observation, Probe, Standing, Supply, fine, unknown, wrong
from slipway.infra.review.stack import NodePool, Stack, is_true, mappings, text, texts
from slipway.infra.schema.request import Request

DATA = Path(__file__).parent / "data" / "permissions.toml"

AUTH_PLUGIN = "gke-gcloud-auth-plugin"
SERVICE = "gcp:projects/service:Service"

FIRST_SERVICES = ("serviceusage.googleapis.com", "cloudresourcemanager.googleapis.com")
"""The APIs through which the stack switches on the others; docs/gcp.md has them."""

SIGN_IN, PROJECT, APIS, ROLES = "Google Cloud sign-in", "Google Cloud project", "Google Cloud APIs", "roles"
OFFERS = "machine types in their zones"


def probes(stack: Stack, request: Request | None) -> Sequence[Probe]:
    """What is checked for ``stack``. Whatever needs an answer of Google is passed over without a sign-in."""
    project = project_of(stack)
    observations = [
        Probe(AUTH_PLUGIN, _helper),
        Probe("gcloud sign-in", _gcloud_login),
        Probe(PROJECT, lambda: _check_project_setting(project)),
        Probe(SIGN_IN, lambda: _check_sign_in(stack)),
    ]
    observations.append(Probe(PROJECT, lambda: _ask_google(stack, project)))
    return [*observations, *(bucket_probes(stack, request) if request else [])]


def project_of(stack: Stack) -> str:
    """The project that the provider takes; empty where there is none."""
    return text(stack.configuration.get("gcp:project")) or next(
        filter(None, map(os.environ.get, PROJECT_VARIABLES)), ""
    )


def _helper() -> Iterator[Observation]:
    if path := shutil.which(AUTH_PLUGIN):
        yield fine(AUTH_PLUGIN, f"is {path}")
    else:
        how = f"gcloud components install {AUTH_PLUGIN}"
        if not shutil.which("gcloud"):
            how = "open https://cloud.google.com/sdk/docs/install"
        yield wrong(AUTH_PLUGIN, "is not on PATH; Pulumi signs in to GKE clusters with it", how)


def _gcloud_login() -> Iterator[Observation]:
    """The plugin asks gcloud for a token, which has accounts of its own beside the application default.

    ``credentials.db`` is where gcloud keeps them (googlecloudsdk/core/credentials/creds.py, SDK 540).
    """
    subject, file = "gcloud sign-in", gcloud_folder() / "credentials.db"
    if any(
        os.environ.get(variable)
        for variable in ("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE")
    ):
        yield fine(subject, "is in the environment")
        return
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            accounts = [str(row[0]) for row in database.execute("select account_id from credentials")]
    except sqlite3.Error:
        accounts = []
    if accounts:
        yield fine(subject, f"has {', '.join(accounts)}")
    else:
        yield wrong(
            subject,
            f"is missing: gcloud has no account, and {AUTH_PLUGIN} asks gcloud for a token",
            "gcloud auth login",
        )


def _check_project_setting(project: str) -> Iterator[Observation]:
    if project:
        yield fine("gcp:project", f"is {project}")
    else:
        problem = no_project(STACK)
        yield wrong("gcp:project", f"is not set: {problem.reason}", problem.fix)


def _check_sign_in(stack: Stack) -> Iterator[Observation]:
    try:
        google = of_stack(stack)
    except NoCredentialsError as error:
        yield wrong(SIGN_IN, f"fails: {error}", LOGIN)
    except UnreachableError as error:
        yield unknown(
            SIGN_IN, f"could not be tried: {error}", "gcloud auth application-default print-access-token"
        )
    else:
        yield fine(SIGN_IN, f"works, with {google.source}")


@dataclass(frozen=True)
class Patient:
    """A stack and its project, and Google to ask about them."""

    stack: Stack
    project: str
    google: Google


def _ask_google(stack: Stack, project: str) -> Iterator[Observation]:
    """Every check that needs a sign-in; none without one, which `_check_sign_in` reports."""
    everything = "project, billing, APIs, roles, quotas and machine types"
    try:
        google = of_stack(stack)
    except (NoCredentialsError, UnreachableError):
        yield unknown(everything, "were not asked for: Google Cloud could not be signed in to")
        return
    if not project:
        yield unknown(everything, "were not asked for: the stack names no project")
        return
    patient = Patient(stack, project, google)
    observations = list(_project(patient))
    yield from observations
    if any(observation.state == "wrong" for observation in observations):
        return
    for check in (_billing, _apis, _roles, _offers):
        yield from pass_on(check(patient), check.__name__.strip("_"))
    yield from pass_on(quotas(google, stack, project), "quotas")


def _project(patient: Patient) -> Iterator[Observation]:
    """Source of the answer: https://cloud.google.com/resource-manager/reference/rest/v1/projects/get."""
    project = patient.project
    try:
        answer = patient.google.get("cloudresourcemanager.googleapis.com", f"v1/projects/{project}")
    except RefusedError as error:
        if error.reason == "SERVICE_DISABLED":
            yield _switch_on(
                project, FIRST_SERVICES, "are switched off: through them the stack switches on the others"
            )
        elif error.status in {403, 404}:
            # Google answers the same for a project that is not there and for one that the user may not see.
            yield wrong(
                PROJECT,
                f"`{project}` is not there, or you may not see it ({error})",
                f"gcloud projects describe {project}",
            )
        else:
            yield unknown(
                PROJECT, f"`{project}` could not be read: {error}", f"gcloud projects describe {project}"
            )
    except (UnreachableError, NoCredentialsError) as error:
        yield unknown(PROJECT, f"`{project}` could not be read: {error}", f"gcloud projects describe {project}")
    else:
        state = text(answer.get("lifecycleState"))
        if state == "ACTIVE":
            yield fine(PROJECT, f"`{project}` is there")
        else:
            yield wrong(
                PROJECT, f"`{project}` is about to be deleted ({state})", f"gcloud projects undelete {project}"
            )


def _billing(patient: Patient) -> Iterator[Observation]:
    """Source: https://cloud.google.com/billing/docs/reference/rest/v1/projects/getBillingInfo."""
    project = patient.project
    see = f"gcloud billing projects describe {project}"
    try:
        answer = patient.google.get("cloudbilling.googleapis.com", f"v1/projects/{project}/billingInfo")
    except (RefusedError, UnreachableError) as error:
        yield unknown("billing", f"of `{project}` could not be read: {error}", see)
        return
    if is_true(answer.get("billingEnabled")):
        yield fine("billing", f"is on for `{project}`")
    else:
        link = f"gcloud billing projects link {project} --billing-account=<account>"
        yield wrong("billing", f"is off for `{project}`: no cluster can be made", link)


def _apis(patient: Patient) -> Iterator[Observation]:
    """Source: https://cloud.google.com/service-usage/docs/reference/rest/v1/services/batchGet."""
    declared = [text(service.properties.get("service")) for service in patient.stack.of_type(SERVICE)]
    names = [*FIRST_SERVICES, *(name for name in declared if name and name not in FIRST_SERVICES)]
    prefix = f"projects/{patient.project}"
    query = "&".join(f"names={prefix}/services/{name}" for name in names)
    try:
        answer = patient.google.get("serviceusage.googleapis.com", f"v1/{prefix}/services:batchGet?{query}")
    except RefusedError as error:
        if error.reason == "SERVICE_DISABLED":
            yield _switch_on(
                patient.project, FIRST_SERVICES, "are switched off: through them the stack switches on the others"
            )
            return
        yield unknown(APIS, f"could not be read: {error}", f"gcloud services list --project {patient.project}")
        return
    on = {
        text(service.get("name")).rpartition("/")[2]
        for service in mappings(answer.get("services"))
        if service.get("state") == "ENABLED"
    }
    if first := [name for name in FIRST_SERVICES if name not in on]:
        yield _switch_on(patient.project, first, "switched off: the stack switches on the others through it")
        return
    off = [name for name in names if name not in on]
    rest = f"; `pulumi up` switches on {', '.join(off)}" if off else ""
    yield fine(APIS, f"{len(on)} of {len(names)} are on{rest}")


def _switch_on(project: str, names: Sequence[str], why: str) -> Observation:
    return wrong(
        APIS, f"{' and '.join(names)} {why}", f"gcloud services enable {' '.join(names)} --project {project}"
    )


def _roles(patient: Patient) -> Iterator[Observation]:
    """Source: https://cloud.google.com/resource-manager/reference/rest/v1/projects/testIamPermissions."""
    project, rules = patient.project, _rules()
    types = {
        resource.type for resource in patient.stack.resources.values() if resource.custom and not resource.read
    }
    needed = {
        name: rules[type_]["role"]
        for type_ in sorted(types & rules.keys())
        for name in rules[type_]["permissions"]
    }
    answer = patient.google.post(
        "cloudresourcemanager.googleapis.com",
        f"v1/projects/{project}:testIamPermissions",
        {"permissions": sorted(needed)},
    )
    granted = set(texts(answer.get("permissions")))
    missing: dict[str, list[str]] = {}
    for permission, role in needed.items():
        if permission not in granted:
            missing.setdefault(role, []).append(permission)
    for role, permissions in missing.items():
        yield wrong(
            ROLES,
            f"you lack {', '.join(permissions)} in `{project}`",
            f"gcloud projects add-iam-policy-binding {project} --role={role} --member=user:<you>",
        )
    if not missing:
        yield fine(ROLES, f"allow all {len(needed)} of the permissions asked about in `{project}`")


def _offers(patient: Patient) -> Iterator[Observation]:
    """Whether each pool's zones have its machine type and GPU now, for this project.

    Source: https://cloud.google.com/compute/docs/reference/rest/v1/machineTypes/get and acceleratorTypes/get.
    """
    seen: set[tuple[str, str, str]] = set()
    for pool in patient.stack.of_type(nodes.NODE_POOL):
        for zone in _zones(pool.properties):
            seen.add((zone, "machineTypes", nodes.machine_of(pool.properties)))
            if accelerator := nodes.accelerator_of(pool.properties):
                seen.add((zone, "acceleratorTypes", accelerator))
    lacking = 0
    for zone, kind, name in sorted(seen):
        path = f"compute/v1/projects/{patient.project}/zones/{zone}/{kind}/{name}"
        try:
            patient.google.get("compute.googleapis.com", path)
        except RefusedError as error:
            if error.reason == "SERVICE_DISABLED":
                yield unknown(
                    OFFERS,
                    "could not be told: Compute Engine is not switched on yet; `pulumi up` does that first",
                    f"gcloud services enable compute.googleapis.com --project {patient.project}",
                )
                return
            if error.status != 404:
                raise
            lacking += 1
            noun = "machine-types" if kind == "machineTypes" else "accelerator-types"
            yield wrong(
                OFFERS, f"{zone} does not offer {name}", f"gcloud compute {noun} list --filter='name={name}'"
            )
    if seen and not lacking:
        yield fine(OFFERS, f"{len({zone for zone, _, _ in seen})} zones offer what the pools ask for")


def supply(stack: Stack, pool: NodePool) -> Supply:
    """What Google has for one node of ``pool``."""
    project = project_of(stack)
    if not project:
        return Supply(unknown="the stack names no project")
    try:
        google = of_stack(stack)
    except (NoCredentialsError, UnreachableError):
        return Supply(unknown="Google Cloud could not be signed in to")
    regions: dict[str, Mapping[str, tuple[float, float]]] = {}
    standings: list[Standing] = []
    try:
        for quota in pool.quotas:
            try:
                limit, used = standing(google, project, quota, regions) if quota.known else (None, None)
            except (RefusedError, LookupError):
                limit, used = None, None
            # Of the quota of a family, Google tells the limit alone.
            standings.append(Standing(quota, limit, None if ", " in quota.metric else used))
        return Supply(standings, _offering(google, project, pool))
    except (NoCredentialsError, UnreachableError) as error:
        return Supply(unknown=str(error))


def _offering(google: Google, project: str, pool: NodePool) -> Sequence[str] | None:
    """The pool's zones with its machine type and GPU; None where it names none, or Google does not say."""
    kinds = [("machineTypes", pool.machine)]
    kinds += [("acceleratorTypes", pool.accelerator)] if pool.accelerator else []
    offering: list[str] = []
    for zone in pool.zones:
        try:
            for kind, name in kinds:
                google.get("compute.googleapis.com", f"compute/v1/projects/{project}/zones/{zone}/{kind}/{name}")
        except RefusedError as error:
            if error.status != 404 or error.reason:
                return None
        else:
            offering.append(zone)
    return offering if pool.zones else None


def _zones(pool: Mapping[str, Any]) -> Sequence[str]:
    """The zones that a node pool names, or its one zone; those of a region that are left to GKE are its choice."""
    location = text(pool.get("location"))
    named = texts(pool.get("nodeLocations")) or ([location] if is_zone(location) else [])
    known = {zone for zones in regions().values() for zone in zones}
    return [zone for zone in named if zone in known]


@cache
def _rules() -> Mapping[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


# Prices are those of the Cloud Billing Catalog API, with GOOGLE_API_KEY; zones those of Compute Engine, where this
# machine is signed in and the environment names a project. Not asked for: prices of machine types with GPUs built
# in, which are sums over SKUs. Formats, seen in November 2026: services.skus/list below
# cloud.google.com/billing/docs/reference/rest/v1; acceleratorTypes/aggregatedList and machineTypes/aggregatedList
# below cloud.google.com/compute/docs/reference/rest/v1.
BILLING = "https://cloudbilling.googleapis.com"
COMPUTE_ENGINE = "6F81-5844-456A"
"""The id of its service in Cloud Billing (cloud.google.com/skus)."""


def refresh(files: AcceleratorFiles, today: date) -> None:
    """Writes prices and zones into ``files``. Raises RefreshError, and what `requests` raises."""
    _refresh_prices(files, today)
    _refresh_zones(files, today)


def skus(key: str) -> Iterator[Mapping[str, Any]]:
    """All SKUs of Compute Engine."""
    import requests  # noqa: PLC0415

    url, token = f"{BILLING}/v1/services/{COMPUTE_ENGINE}/skus", ""
    while True:
        query = {"key": key, "pageSize": "5000", "pageToken": token}
        answer = requests.get(url, params=query, timeout=TIMEOUTS)
        answer.raise_for_status()
        yield from answer.json()["skus"]
        token = answer.json().get("nextPageToken", "")
        if not token:
            return


def _refresh_prices(files: AcceleratorFiles, today: date) -> None:
    """Of GPUs that are attached to machines: Tesla T4 is ``nvidia-tesla-t4``."""
    key = os.environ.get("GOOGLE_API_KEY")
    if not key:
        files.left.append("Google's prices: set GOOGLE_API_KEY to a key for the Cloud Billing API")
        return
    told = re.compile(r"Nvidia (\w+ \w+) GPU (?:attached to (Spot) Preemptible VMs )?running in ")
    prices: Prices = {}
    for sku in skus(key):
        match, usage = told.match(sku["description"]), sku["category"]["usageType"]
        if match and usage == ("Preemptible" if match[2] else "OnDemand"):
            price = sku["pricingInfo"][0]["pricingExpression"]["tieredRates"][-1]["unitPrice"]
            amount = round(int(price.get("units", 0)) + price.get("nanos", 0) / 1e9, 5)
            name = f"nvidia-{match[1].lower().replace(' ', '-')}"
            for region in sku["serviceRegions"] if amount else ():
                prices.setdefault((name, region), {})["spot" if match[2] else "on_demand"] = amount
    files.put_prices("gcp", "accelerators", prices, "billing_catalogue")
    url = "https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list"
    files.cite(files.prices("gcp"), "sources.billing_catalogue", url, "read", today)


def _refresh_zones(files: AcceleratorFiles, today: date) -> None:
    """Of GPUs that are attached, the zones of the GPU; of others, those of the machine types that have it."""
    project = next(filter(None, map(os.environ.get, PROJECT_VARIABLES)), "")
    try:
        google = signed_in({}) if project else None
    except NoCredentialsError:
        google = None
    if google is None:
        files.left.append("zones of Google: sign in, and name a project in GOOGLE_CLOUD_PROJECT")
        return
    for path, sold in list(files.sold_by("gcp")):
        kind, names = (
            ("machineTypes", list(sold.get("machines", {})))
            if "machines" in sold
            else ("acceleratorTypes", [path.stem])
        )
        query = {"filter": " OR ".join(f"(name = {name})" for name in names), "maxResults": "500", "pageToken": ""}
        after: set[str] = set()
        while True:
            try:
                page = google.get(
                    "compute.googleapis.com", f"compute/v1/projects/{project}/aggregated/{kind}", **query
                )
            except (RefusedError, UnreachableError, NoCredentialsError) as error:
                raise RefreshError(f"Compute Engine cannot be asked: {error}") from error
            after |= {
                place.removeprefix("zones/") for place, content in page["items"].items() if content.get(kind)
            }
            query["pageToken"] = page.get("nextPageToken", "")
            if not query["pageToken"]:
                break
        if not after:
            raise RefreshError(f"Compute Engine offers {path.stem} nowhere")
        files.put_zones(path, "gcp", sold.get("zones", []), sorted(after))
        files.set(path, "gcp.sources", "zones", '["google_compute_api"]')
        url = "https://cloud.google.com/compute/docs/reference/rest/v1/acceleratorTypes/aggregatedList"
        files.cite(files.sources, "google_compute_api", url, "read", today)
