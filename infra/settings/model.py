"""The typed shape of a stack file: what may stand under the ``slipway:`` keys of ``stacks/Pulumi.<env>.yaml``.

Shapes and single-value rules live in the models; rules that join several keys are in
``checks``, and those of one cloud in its ``rules``. All report into one `SettingsError`.
"""

from typing import Any

from pydantic import Field

from infra.clouds import Cluster, Store
from infra.settings.base import Model
from infra.settings.egress import EgressSettings
from infra.settings.pipelines import Pipelines
from infra.settings.policies import Policies


class Settings(Model):
    """One stack, as its file declares it."""

    protect: bool = Field(
        default=False,
        description="One switch: deletion protection, Pulumi's protect, and no force_destroy on what holds data.",
    )
    namespace: str = Field(default="slipway", description="Kubernetes namespace that the Jobs run in.")
    service_account: str = Field(default="runner", description="Kubernetes service account of the Jobs.")
    egress: EgressSettings = Field(
        default_factory=EgressSettings, description="Where the Jobs' pods may connect to."
    )
    clusters: dict[str, Cluster] = Field(min_length=1, description="Clusters by name.")
    store: Store = Field(description="The one store that all clusters share.")
    pipelines: Pipelines = Field(default_factory=Pipelines, description="The pipelines to run.")
    policies: Policies = Field(default_factory=Policies, description="What the policies may find in this stack.")
    rehearsal: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings that `make rehearse` lays over the ones above, for what needs a network; "
        "`pulumi up` checks and ignores it.",
    )
