"""Small stacks on one cloud, as its package declares them; each once in a test run."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pulumi

from slipway.infra.emulator import Emulator
from slipway.infra.platform import Platform
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
