"""What a project has of the quotas that a stack needs, as Google says it now."""

from collections.abc import Iterator, Mapping

from infra.clouds.gcp.google_api import Google, RefusedError
from infra.clouds.gcp.review.quotas import ALL_REGIONS, SPOT_CPUS
from infra.review.facts import Quota
from infra.review.observation import Observation, fine, unknown, wrong
from infra.review.properties import mapping, mappings, text
from infra.review.stack import Stack

SUBJECT = "quotas"
FORM = "https://console.cloud.google.com/iam-admin/quotas?project={project}"


def quotas(google: Google, stack: Stack, project: str) -> Iterator[Observation]:
    """Whether what is left of each quota is enough for every pool at its largest.

    Raises UnreachableError, NoCredentialsError; what is refused is told.
    """
    left = 0
    places: dict[str, Mapping[str, tuple[float, float]]] = {}
    for quota in stack.quotas:
        if not quota.known:
            yield unknown(SUBJECT, f"no source says which quota counts {_named(quota)}", quota.see)
            continue
        try:
            limit, usage = _standing(google, project, quota, places)
        except RefusedError as error:
            if error.reason == "SERVICE_DISABLED":
                reason = f"{error.service or 'its API'} is not switched on in `{project}` yet"
                on = f"gcloud services enable {error.service} --project {project}" if error.service else quota.see
                yield unknown(SUBJECT, f"could not be read: {reason}", on)
                return
            yield unknown(SUBJECT, f"{_named(quota)} could not be read: {error}", quota.see)
            continue
        except LookupError:
            yield unknown(SUBJECT, f"{_named(quota)} is in no answer of Google", quota.see)
            continue
        if limit - usage < quota.needed:
            used = f", of which {usage:g} are used" if usage else ""
            yield wrong(
                SUBJECT,
                f"{_named(quota)} is {limit:g} {quota.unit}{used}; the stack needs up to {quota.needed:g}",
                f"open {FORM.format(project=project)}",
            )
        else:
            left += 1
    if left:
        yield fine(SUBJECT, f"{left} of {len(stack.quotas)} have room for every pool at its largest")


def _named(quota: Quota) -> str:
    return f"{quota.metric} ({quota.where})"


def _standing(
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
        found = google.get("compute.googleapis.com", path, fields="quotas")
        places[quota.where] = {
            text(each.get("metric")): (float(each.get("limit") or 0), float(each.get("usage") or 0))
            for each in mappings(found.get("quotas"))
        }
    there = places[quota.where]
    # A project without a quota of its own for Spot counts Spot vCPUs with the others (data/quotas.toml).
    if name == SPOT_CPUS and not there.get(name, (0, 0))[0] and "CPUS" in there:
        return there["CPUS"]
    return there[name]


def _of_family(google: Google, project: str, region: str, name: str, family: str) -> float:
    """The limit of one family of GPUs or machines in a region.

    Source: https://cloud.google.com/docs/quotas/reference/rest/v1/projects.locations.services.quotaInfos/get,
    November 2026. Entries come from the most special to the most general.
    """
    path = f"v1/projects/{project}/locations/global/services/compute.googleapis.com/quotaInfos/{name}"
    found = google.get("cloudquotas.googleapis.com", path)
    for each in mappings(found.get("dimensionsInfos")):
        dimensions = {"region": region, "gpu_family": family, "vm_family": family}
        if all(dimensions.get(key) == value for key, value in mapping(each.get("dimensions")).items()):
            return float(text(mapping(each.get("details")).get("value")) or 0)
    raise LookupError(name)
