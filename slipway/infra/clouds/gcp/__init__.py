"""Google Cloud: GKE clusters with GPU node pools, a bucket they share, and the identity that may use it."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from slipway.infra.accelerators import AcceleratorFiles
from slipway.infra.clouds.contract import Check, Cloud, Inputs
from slipway.infra.clouds.gcp import settings
from slipway.infra.clouds.gcp.settings import ExistingGcsStore, FilestoreStore, GcpCluster, GcsStore
from slipway.infra.emulator import Emulator
from slipway.infra.platform import Data, Platform, Store
from slipway.infra.review.contract import Review
from slipway.infra.review.facts import Probe, Supply
from slipway.infra.review.stack import NodePool, Stack, Unknown, text
from slipway.infra.schema.problems import Problem
from slipway.infra.schema.request import Request, Starter, Wish


class GoogleCloud(Cloud):
    """Google Cloud."""

    name = "gcp"
    title = "Google Cloud"
    sdk = "pulumi-gcp"
    cluster = GcpCluster
    stores = (GcsStore, ExistingGcsStore, FilestoreStore)

    def checks(self) -> Sequence[Check]:
        from slipway.infra.clouds.gcp import rules

        return rules.CHECKS

    def provider_problems(self, configuration: Mapping[str, Any]) -> Sequence[Problem]:
        from slipway.infra.clouds.gcp import rules

        return rules.provider_problems(configuration)

    def preflight_problems(self, request: Request | None) -> Sequence[Problem]:
        from slipway.infra.clouds.gcp import platforms

        return platforms.preflight_problems(request)

    def platforms(self, request: Request) -> Mapping[str, Platform]:
        from slipway.infra.clouds.gcp import platforms

        return platforms.platforms(request)

    def readable(self, store: Store, arguments: Mapping[str, str]) -> Store:
        from slipway.infra.clouds.gcp.store import readable

        return readable(store, arguments)

    def emulator(self, request: Request) -> Emulator:
        from slipway.infra.clouds.gcp import emulator

        return emulator.Emulator(request)

    def review(self) -> Review:
        from slipway.infra.clouds.gcp.review import REVIEW

        return REVIEW

    def probes(self, stack: Stack, request: Request | None) -> Sequence[Probe]:
        from slipway.infra.clouds.gcp import doctor

        return doctor.probes(stack, request)

    def computed(self, function: str, args: Inputs, provider: Inputs) -> Inputs | None:  # noqa: ARG002
        if function != "organizations/getClientConfig:getClientConfig":
            return None
        # What no setting has, the provider takes from the environment or asks for.
        fields = ("project", "region", "zone", "id", "accessToken")
        return {key: text(provider.get(key)) or Unknown(f"getClientConfig.{key}") for key in fields}

    def input_problem(self, data: Data, cluster: str, request: Request) -> tuple[str, str] | None:
        from slipway.infra.clouds.gcp import rules

        return rules.input_problem(data, cluster, request)

    def supply(self, stack: Stack, pool: NodePool) -> Supply | None:
        from slipway.infra.clouds.gcp import doctor

        return doctor.supply(stack, pool)

    def refresh(self, files: AcceleratorFiles, today: date) -> None:
        from slipway.infra.clouds.gcp import doctor

        doctor.refresh(files, today)

    def starter(self, wish: Wish) -> Starter | Sequence[Problem]:
        return settings.starter(wish)
