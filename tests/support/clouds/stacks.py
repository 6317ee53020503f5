"""Small stacks on one cloud, as its package declares them; each once in a test run."""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pulumi

from slipway.infra.emulator import Emulator
from slipway.infra.platform import Platform
from slipway.infra.schema.request import AppAccess, Request
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.recording import Recording, record

Platforms = Mapping[str, Platform]

_DECLARED: dict[tuple[object, ...], Recording] = {}


def declare_once(
    settings: Settings,
    platforms: Callable[[Any], Platforms],
    emulator: Emulator,
    config: Mapping[str, str],
    *,
    preview: bool,
    stack: str,
    then: Callable[[Platforms], object] | None,
    store: Mapping[str, str] | None = None,
) -> Recording:
    """Declares the platforms of a stack; ``then`` runs in the program with them.

    Without ``then``, what was recorded of such a stack before is returned: recordings are to be read only.
    """

    def program() -> Platforms:
        declared = platforms(settings.request)
        for name, platform in declared.items():
            pulumi.export(f"{name}-kubeconfig", platform.kubeconfig)
            pulumi.export(f"{name}-connect", platform.connect)
            pulumi.export(f"{name}-kubectl", platform.kubectl)
            pulumi.export(f"{name}-store", platform.store.url)
            pulumi.export(f"{name}-annotations", dict(platform.service_account_annotations))
        if then is not None:
            then(declared)
        return declared

    key = (settings.model_dump_json(), preview, stack, *config.items())
    if then is None and key in _DECLARED:
        return _DECLARED[key]
    recording = record(program, config, preview=preview, emulators=[emulator], store=store, stack_name=stack)
    if then is None:
        _DECLARED[key] = recording
    return recording


def with_extra_pool(base: Mapping[str, Any], pool: Mapping[str, Any], cluster: Mapping[str, Any]) -> Settings:
    """The stack ``base`` with one more pool, named ``extra``, in its cluster ``dev``, with more keys of that."""
    values = copy.deepcopy(dict(base))
    values["clusters"]["dev"].update(cluster)
    values["clusters"]["dev"]["pools"]["extra"] = dict(pool)
    return load(values)


def assert_names_fit(
    recordings: Sequence[Recording], limits: Mapping[str, tuple[str, int]], alike: Collection[str] = ()
) -> None:
    """Names of two stacks' resources are within their limits, and apart, but for those of the types ``alike``."""
    for token, (key, limit) in limits.items():
        inputs = [[resource.inputs[key] for resource in recording.of(token)] for recording in recordings]
        names = [[name if isinstance(name, str) else name["name"] for name in names] for names in inputs]
        assert all(3 <= len(name) <= limit for stack_names in names for name in stack_names), names
        assert token in alike or (len({*names[0]}) == len(names[0]) and {*names[0]}.isdisjoint(names[1]))


def changed_copy(base: Mapping[str, Any], change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    values = copy.deepcopy(dict(base))
    change(values)
    return values


class WithApps(Settings):
    """Settings whose request has an app that reads the store, and one that writes."""

    @property
    def request(self) -> Request:
        reads = AppAccess("mnist-serving", "cpu", "mnist-serving")
        writes = AppAccess("mnist-notebook", "cpu", "mnist-notebook", "mnist/notebook")
        return replace(super().request, apps=(reads, writes))
