"""Inputs of pipelines: whether clusters can mount a bucket, and which folders of the store can be an input."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.pipelines.cuda import SUPPLEMENTS
from slipway.infra.pipelines.inputs import INPUTS, data_of
from slipway.infra.placed import GATES_FOLDER, OWN_NAMES
from slipway.infra.platform import Data
from slipway.infra.schema.problems import Finding, Path, Problem, key_of
from slipway.infra.settings.parsing import OVERLAY, Draft, Reading
from slipway.infra.settings.pipelines import KEY


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the place of each input: one for each cluster whose steps read it and cannot."""
    draft, request = reading.draft, reading.request
    for name, settings in draft.pipelines.items():
        for key, data in data_of(settings).items():
            if data.in_store:
                yield from _folder((KEY, name, INPUTS, key), data, draft)
    for access in request.inputs:
        for name, cluster in draft.clusters.items():
            if access not in request.inputs_on(name):
                continue
            if problem := CLOUDS[cluster.cloud].input_problem(access.data, name, request):
                read: tuple[Path, ...] = ((*access.at, "url"), ("clusters", name, "cloud"), ("store", "kind"))
                yield Finding(access.at, access.data.url, *problem, read=read)


def _folder(at: Path, data: Data, draft: Draft) -> Iterator[Finding]:
    """A finding where a folder of the store has an owner, whose results have digests of their own."""
    top = data.folder.partition("/")[0]
    taken = {*draft.pipelines, *OWN_NAMES, GATES_FOLDER, *SUPPLEMENTS}
    if top in taken or top.startswith("."):
        reason = f"`{top}/` of the store has results of steps, or what is kept of them"
        fix = "name a folder that no step writes, such as `{store}/data`; of an earlier step write `{<step>}`"
        yield Finding(at, data.url, reason, fix, read=((*at, "url"), (KEY,)))


def overlay_problems(raw: Mapping[str, Any], overlay: Mapping[str, Any]) -> Iterator[Problem]:
    """Inputs that a rehearsal has elsewhere, and that would keep the digest of what the stack has.

    ``raw`` and ``overlay`` are plain values, which may be wrong.
    """
    for name, section in _mapping(overlay.get(KEY)).items():
        for key, value in _mapping(_mapping(section).get(INPUTS)).items():
            before = _mapping(_mapping(_mapping(_mapping(raw.get(KEY)).get(name)).get(INPUTS)).get(key))
            changed = _mapping(value)
            if "url" in changed and "digest" not in changed and "digest" in before:
                at = key_of((OVERLAY, KEY, name, INPUTS, key))
                url = changed["url"]
                reason = f"the digest of {before.get('url')} would stand beside it, which is other data"
                yield Problem(at, url, reason, f'write the address alone: `{key}: "{url}"`')


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
