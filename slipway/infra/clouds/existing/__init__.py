"""A cluster that is already there, by kubeconfig and context, with a store on its volumes."""

from collections.abc import Mapping, Sequence

from slipway.infra.api_server import ApiServer
from slipway.infra.clouds.contract import Check, Cloud
from slipway.infra.clouds.existing import settings
from slipway.infra.clouds.existing.settings import ExistingCluster, NfsStore, PvcStore, S3CompatibleStore
from slipway.infra.emulator import Emulator
from slipway.infra.platform import Platform
from slipway.infra.review.contract import Review
from slipway.infra.review.facts import Probe
from slipway.infra.review.stack import Stack
from slipway.infra.schema.problems import Problem
from slipway.infra.schema.request import Request, Starter, Wish


class ExistingClusters(Cloud):
    """Clusters that are already there, which need no provider of a cloud."""

    name = "existing"
    title = "Existing cluster"
    sdk = None
    cluster = ExistingCluster
    stores = (PvcStore, NfsStore, S3CompatibleStore)

    def checks(self) -> Sequence[Check]:
        from slipway.infra.clouds.existing import rules

        return rules.CHECKS

    def preflight_problems(self, request: Request | None) -> Sequence[Problem]:
        from slipway.infra.clouds.existing import live_cluster

        return live_cluster.preflight_problems(request)

    def platforms(self, request: Request) -> Mapping[str, Platform]:
        from slipway.infra.clouds.existing import platforms

        return platforms.platforms(request)

    def emulator(self, request: Request) -> Emulator:
        from slipway.infra.clouds.existing import platforms as emulator

        return emulator.Emulator(request)

    def review(self) -> Review:
        from slipway.infra.clouds.existing.review import REVIEW

        return REVIEW

    def probes(self, stack: Stack, request: Request | None) -> Sequence[Probe]:
        from slipway.infra.clouds.existing import doctor

        return doctor.probes(stack, request)

    def servers(self, stack: Stack, request: Request | None) -> Mapping[str, ApiServer]:
        from slipway.infra.clouds.existing import doctor

        return doctor.servers(stack, request)

    def starter(self, wish: Wish) -> Starter | Sequence[Problem]:
        return settings.starter(wish)
