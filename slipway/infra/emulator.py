"""What stands in for a cloud where the program is evaluated without it, and what each of them owes."""

import base64
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from slipway.infra.platform import Node, Resources

_NOT_A_CERTIFICATE = base64.b64encode(b"Emulated: no certificate authority signed this.").decode()
EMULATED_CA_CERTIFICATE = base64.b64encode(
    f"-----BEGIN CERTIFICATE-----\n{_NOT_A_CERTIFICATE}\n-----END CERTIFICATE-----\n".encode()
).decode()
"""Stands in for a cluster's: base64 of PEM, as GKE and EKS give it. What the PEM holds is no certificate."""


EMULATED_DIGEST = f"sha256:{'0' * 64}"
"""Stands in for an image's that nobody has built."""


def rows(table: Path) -> Mapping[str, Mapping[str, Any]]:
    """The outputs of resources by type, as the TOML file ``table`` has them: formats, and other values."""
    return tomllib.loads(table.read_text(encoding="utf-8"))


class Words(dict[str, Any]):
    """The words of formats: ``defaults``, and the inputs of a resource over them. An engine may give inputs that
    have a name in place of each that is missing."""

    def __init__(self, inputs: Mapping[str, Any], **defaults: Any) -> None:
        super().__init__({**defaults, **inputs})
        self._inputs = inputs

    def __missing__(self, key: str) -> Any:
        return self._inputs[key]


def filled(row: Mapping[str, Any], words: Mapping[str, Any], but: Sequence[str] = ()) -> Mapping[str, Any]:
    """The outputs of a ``row`` without the keys ``but``, with ``words`` in its formats."""
    shown = {key: value for key, value in row.items() if key not in but}
    return {key: value.format_map(words) if isinstance(value, str) else value for key, value in shown.items()}


class Emulator:
    """What stands in for a cloud when the program is evaluated without one.

    Each package that fulfils `Platform` has one, made from an `slipway.infra.schema.request.Request`; the engines
    in ``offline`` ask every emulator in turn and take the first answer that is not None.
    """

    configuration: Mapping[str, str] = MappingProxyType({})
    """The providers' configuration that a stack needs, with what stands in where it sets none."""

    store_drivers: ClassVar[frozenset[str]] = frozenset()
    """The CSI drivers that mount the stack's store straight into a pod."""

    def prepare(self) -> None:
        """Called before the program, in the evaluation's context: keeps it from what differs between machines."""

    def outputs(self, token: str, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:  # noqa: ARG002
        """The provider-computed outputs of a resource of type ``token``: well-formed and clearly fake."""
        return None

    computed_calls: ClassVar[frozenset[str]] = frozenset()
    """The provider functions whose result only an update can tell, which a preview does not know."""

    def call(self, token: str, args: Mapping[str, Any], store: "StoreFiles") -> Mapping[str, Any] | None:  # noqa: ARG002
        """The result of a provider function; ``store`` reads files of the emulated store."""
        return None

    def nodes(self, token: str, name: str, inputs: Mapping[str, Any]) -> Sequence[Node]:  # noqa: ARG002
        """The nodes that this resource brings once created; empty for all but node pools."""
        return ()

    def standing_nodes(self) -> Sequence[Node]:
        """The nodes that are there before the program runs."""
        return ()

    def standing_namespaces(self) -> Sequence[tuple[str, str]]:
        """Cluster and name of the namespaces that are there before the program runs."""
        return ()

    def injected(self, annotations: Mapping[str, str]) -> Resources:  # noqa: ARG002
        """What the cloud adds to the requests of a pod with these annotations on its way in."""
        return Resources(cpu=0, memory=0)


class StoreFiles(Protocol):
    """Reads files of the emulated store by their path below its root."""

    def read_text(self, path: str) -> str:
        """The file's text; raises FileNotFoundError where there is none."""
        ...

    def names(self, prefix: str) -> Sequence[str]:
        """Paths of the files whose path begins with ``prefix``, sorted."""
        ...
