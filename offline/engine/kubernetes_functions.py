"""What the Kubernetes provider computes without a cluster: the objects of a YAML text."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# PyYAML's resolvers have no types.

from collections.abc import Mapping
from typing import Any

import yaml

from slipway.infra.emulator import Emulator, StoreFiles

DECODE = "kubernetes:yaml:decode"
"""The function behind `ConfigFile` and `ConfigGroup` of the provider's SDK (pulumi-kubernetes 4.32, yaml.py). The
provider itself decodes those of `yaml.v2`, and renders charts and kustomizations."""


class _Loader(yaml.SafeLoader):
    """Reads a date as a text: JSON, of which Kubernetes' objects are made, has no dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class KubernetesFunctions(Emulator):
    """Stands in for the provider's functions that need no cluster."""

    def call(self, token: str, args: Mapping[str, Any], store: StoreFiles) -> Mapping[str, Any] | None:  # noqa: ARG002
        """The result of `DECODE`; raises YAMLError where the text is none."""
        if token != DECODE:
            return None
        return {"result": [document for document in yaml.load_all(args["text"], Loader=_Loader) if document]}
