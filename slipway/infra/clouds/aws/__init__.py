"""Amazon Web Services: EKS clusters, node groups, and a bucket mounted as a file system."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from slipway.infra.accelerators import AcceleratorFiles
from slipway.infra.clouds.aws import settings
from slipway.infra.clouds.aws.settings import AwsCluster, EfsStore, ExistingS3Store, S3Store
from slipway.infra.clouds.contract import Check, Cloud, Inputs
from slipway.infra.emulator import Emulator
from slipway.infra.platform import Platform, Store
from slipway.infra.review.contract import Review
from slipway.infra.review.facts import Probe, Supply
from slipway.infra.review.stack import NodePool, Stack
from slipway.infra.schema.problems import Problem
from slipway.infra.schema.request import Request, Starter, Wish


class Aws(Cloud):
    """Amazon Web Services."""

    name = "aws"
    title = "AWS"
    sdk = "pulumi-aws"
    cluster = AwsCluster
    stores = (S3Store, ExistingS3Store, EfsStore)

    def checks(self) -> Sequence[Check]:
        from slipway.infra.clouds.aws import rules

        return rules.CHECKS

    def provider_problems(self, configuration: Mapping[str, Any]) -> Sequence[Problem]:
        from slipway.infra.clouds.aws import rules

        return rules.provider_problems(configuration)

    def preflight_problems(self, request: Request | None) -> Sequence[Problem]:
        from slipway.infra.clouds.aws import platforms

        return platforms.preflight_problems(request)

    def platforms(self, request: Request) -> Mapping[str, Platform]:
        from slipway.infra.clouds.aws import platforms

        return platforms.platforms(request)

    def readable(self, store: Store, arguments: Mapping[str, str]) -> Store:
        from slipway.infra.clouds.aws.store import readable

        return readable(store, arguments)

    def emulator(self, request: Request) -> Emulator:
        from slipway.infra.clouds.aws import emulator

        return emulator.Emulator(request)

    def review(self) -> Review:
        from slipway.infra.clouds.aws.review import REVIEW

        return REVIEW

    def probes(self, stack: Stack, request: Request | None) -> Sequence[Probe]:
        from slipway.infra.clouds.aws import doctor

        return doctor.probes(stack, request)

    def computed(self, function: str, args: Inputs, provider: Inputs) -> Inputs | None:
        from slipway.infra.clouds.aws.emulator import FUNCTIONS

        compute = FUNCTIONS.get(function)
        return compute(args, provider) if compute else None

    def supply(self, stack: Stack, pool: NodePool) -> Supply | None:
        from slipway.infra.clouds.aws import doctor

        return doctor.supply(stack, pool)

    def refresh(self, files: AcceleratorFiles, today: date) -> None:
        from slipway.infra.clouds.aws import doctor

        doctor.refresh(files, today)

    def starter(self, wish: Wish) -> Starter | Sequence[Problem]:
        return settings.starter(wish)
