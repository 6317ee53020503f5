"""Google Cloud: GKE clusters with GPU node pools, a bucket they share, and the identity that may use it."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from infra.accelerators import AcceleratorFiles
from infra.clouds.contract import BucketTool, Check, Cloud
from infra.clouds.gcp import settings
from infra.clouds.gcp.settings import ExistingGcsStore, FilestoreStore, GcpCluster, GcsStore
from infra.emulator import Emulator
from infra.platform import Data, Platform, Store
from infra.review.contract import Review
from infra.review.facts import Probe
from infra.review.stack import Stack
from infra.schema.problems import Problem
from infra.schema.request import Request, Starter, Wish


class GoogleCloud(Cloud):
    """Google Cloud."""

    name = "gcp"
    title = "Google Cloud"
    sdk = "pulumi-gcp"
    cluster = GcpCluster
    stores = (GcsStore, ExistingGcsStore, FilestoreStore)

    def checks(self) -> Sequence[Check]:
        from infra.clouds.gcp import rules

        return rules.CHECKS

    def provider_problems(self, configuration: Mapping[str, Any]) -> Sequence[Problem]:
        from infra.clouds.gcp import rules

        return rules.provider_problems(configuration)

    def preflight_problems(self, request: Request | None) -> Sequence[Problem]:
        from infra.clouds.gcp import platforms

        return platforms.preflight_problems(request)

    def platforms(self, request: Request) -> Mapping[str, Platform]:
        from infra.clouds.gcp import platforms

        return platforms.platforms(request)

    def readable(self, store: Store, arguments: Mapping[str, str]) -> Store:
        from infra.clouds.gcp.store import readable

        return readable(store, arguments)

    def emulator(self, request: Request) -> Emulator:
        from infra.clouds.gcp import emulator

        return emulator.Emulator(request)

    def review(self) -> Review:
        from infra.clouds.gcp.review import REVIEW

        return REVIEW

    def probes(self, stack: Stack, request: Request | None) -> Sequence[Probe]:
        from infra.clouds.gcp import doctor

        return doctor.probes(stack, request)

    def bucket_tool(self, configuration: Mapping[str, Any]) -> BucketTool | None:
        from infra.clouds.gcp import google_api

        return google_api.bucket_tool(configuration)

    def input_problem(self, data: Data, cluster: str, request: Request) -> tuple[str, str] | None:
        from infra.clouds.gcp import rules

        return rules.input_problem(data, cluster, request)

    def refresh(self, files: AcceleratorFiles, today: date) -> None:
        from infra.clouds.gcp import doctor

        doctor.refresh(files, today)

    def starter(self, wish: Wish) -> Starter | Sequence[Problem]:
        return settings.starter(wish)
