"""The typed shape of a stack file: what may stand under the ``slipway:`` keys of ``stacks/Pulumi.<env>.yaml``.

Shapes and single-value rules live in the models; rules that join several keys or need the catalogue are in
``checks``. Both report into one `SettingsError`.
"""

from typing import Annotated, Any

from pydantic import Field

from infra.settings.base import Model
from infra.settings.existing import ExistingCluster, PvcStore
from infra.settings.gcp import GcpCluster, GcsStore
from infra.settings.pipelines import Pipelines

Cluster = Annotated[GcpCluster | ExistingCluster, Field(discriminator="cloud")]
StoreSettings = Annotated[GcsStore | PvcStore, Field(discriminator="kind")]


class Settings(Model):
    """One stack, as its file declares it."""

    protect: bool = Field(
        default=False,
        description="One switch: deletion protection, Pulumi's protect, and no force_destroy on what holds data.",
    )
    namespace: str = Field(default="slipway", description="Kubernetes namespace that the Jobs run in.")
    service_account: str = Field(default="runner", description="Kubernetes service account of the Jobs.")
    clusters: dict[str, Cluster] = Field(min_length=1, description="Clusters by name.")
    store: StoreSettings = Field(description="The one store that all clusters share.")
    pipelines: Pipelines = Field(default_factory=Pipelines, description="The pipelines to run.")
    rehearsal: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings that `make rehearse` lays over the ones above, for what needs a network; "
        "`pulumi up` checks and ignores it.",
    )
