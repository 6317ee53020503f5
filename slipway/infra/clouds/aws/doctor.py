"""What AWS says of a stack before its first `pulumi up`, and today of accelerators: their prices and zones."""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# botocore has no types.

import csv
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from slipway.infra.accelerators import TIMEOUTS as LIST_TIMEOUTS
from slipway.infra.accelerators import AcceleratorFiles, Prices, RefreshError
from slipway.infra.clouds.aws import catalogue
from slipway.infra.clouds.aws.rules.clusters import REGION_VARIABLES, no_region, only_examples
from slipway.infra.clouds.aws.settings import AwsCluster, ExistingS3Store
from slipway.infra.review.facts import STACK, Observation, Probe, Quota, Standing, Supply, fine, unknown, wrong
from slipway.infra.review.stack import NodePool, Stack, items, mappings, text, texts
from slipway.infra.schema.base import StoreSettings
from slipway.infra.schema.request import Request

DATA = Path(__file__).parent / "data" / "permissions.toml"

SIGN_IN, ACCOUNT, ACTIONS, QUOTAS = "AWS sign-in", "AWS account", "permissions", "quotas"
OFFERS, HELPER, BUCKET = "instance types in their zones", "AWS CLI", "bucket of the store"
INSTALL = "open https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html"

TIMEOUTS = {"connect_timeout": 3, "read_timeout": 15, "retries": {"total_max_attempts": 2}}

BATCH = 50
"""Actions that are asked about at once."""

DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
REFUSED = {"InvalidClientTokenId", "SignatureDoesNotMatch", "AuthFailure", "UnrecognizedClientException"}
"""Codes of AWS's errors (docs.aws.amazon.com/IAM/latest/APIReference/CommonErrors.html, seen November 2026)."""

_clients = Lock()


class _FailedError(Exception):
    """AWS could not be asked; ``observation`` says why."""

    def __init__(self, observation: Observation) -> None:
        super().__init__(observation.said)
        self.observation = observation


@dataclass(frozen=True)
class Account:
    """AWS as a stack signs in: with ``profile``, empty for what the environment names; ``region`` is a default."""

    profile: str
    region: str
    _made: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any], compare=False)

    def call(self, service: str, operation: str, region: str = "", **arguments: Any) -> Any:
        """One call that changes nothing. Raises botocore's ClientError, and `_FailedError` for all else."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            return getattr(self._client(service, region or self.region), operation)(**arguments)
        except ClientError as error:
            code = text(error.response.get("Error", {}).get("Code"))
            if code in EXPIRED | REFUSED:
                words = "has expired" if code in EXPIRED else f"is not accepted ({code})"
                raise _FailedError(wrong(SIGN_IN, words, self.login)) from error
            raise
        except BotoCoreError as error:
            raise _FailedError(self._failure(error)) from error

    def _client(self, service: str, region: str) -> Any:
        from botocore.config import Config  # noqa: PLC0415
        from botocore.session import Session  # noqa: PLC0415

        # Sessions of botocore are not safe to use from several threads; their clients are.
        with _clients:
            if (service, region) not in self._made:
                session = Session(profile=self.profile or None)
                self._made[service, region] = session.create_client(
                    service, region_name=region or "us-east-1", config=Config(**TIMEOUTS)
                )
            return self._made[service, region]

    @property
    def login(self) -> str:
        """The command that signs in again."""
        profile = self.profile or os.environ.get("AWS_PROFILE", "")
        return f"aws sso login --profile {profile}" if profile else "aws configure sso"

    def _failure(self, error: Exception) -> Observation:
        from botocore import exceptions  # noqa: PLC0415

        if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
            return wrong(
                SIGN_IN, "is missing: no credentials in the environment, in ~/.aws or of the machine", self.login
            )
        if isinstance(error, exceptions.ProfileNotFound):
            return wrong(SIGN_IN, f"fails: {error}", "aws configure list-profiles")
        unreachable = (
            exceptions.EndpointConnectionError,
            exceptions.ConnectTimeoutError,
            exceptions.ReadTimeoutError,
            exceptions.ConnectionError,
            exceptions.ProxyConnectionError,
        )
        if isinstance(error, unreachable):
            return unknown(SIGN_IN, f"could not be tried: AWS cannot be reached ({type(error).__name__})")
        return wrong(SIGN_IN, f"fails: {' '.join(str(error).split())}", self.login)


def probes(stack: Stack, request: Request | None) -> Sequence[Probe]:
    """What is checked for ``stack``. Whatever needs an answer of AWS is passed over without a sign-in."""
    clusters = request.clusters_of(AwsCluster) if request else dict[str, AwsCluster]()
    return [
        Probe(HELPER, _helper),
        Probe("aws:region", lambda: _region(stack, clusters)),
        Probe("authorized networks", lambda: _networks(clusters)),
        Probe(SIGN_IN, lambda: _ask_aws(stack, clusters, request.store if request else None)),
    ]


def region_of(stack: Stack) -> str:
    """The provider's region; empty where there is none."""
    return text(stack.configuration.get("aws:region")) or next(
        filter(None, map(os.environ.get, REGION_VARIABLES)), ""
    )


def _helper() -> Iterator[Observation]:
    if path := shutil.which("aws"):
        yield fine(HELPER, f"is {path}; version 2 is needed, which was not asked")
    else:
        yield wrong(HELPER, "is not on PATH; Pulumi signs in to EKS clusters with it", INSTALL)


def _region(stack: Stack, clusters: Mapping[str, AwsCluster]) -> Iterator[Observation]:
    if region := region_of(stack):
        yield fine("aws:region", f"is {region}")
    else:
        problem = no_region(
            STACK, next((cluster.region for cluster in clusters.values()), "<the cluster's region>")
        )
        yield wrong("aws:region", f"is not set: {problem.reason}", problem.fix)


def _networks(clusters: Mapping[str, AwsCluster]) -> Iterator[Observation]:
    for name, cluster in clusters.items():
        if networks := only_examples(cluster):
            key = f"slipway:clusters.{name}.control_plane.authorized_networks.here"
            yield wrong(
                "authorized networks",
                f"of cluster `{name}` are examples ({', '.join(networks)}): nobody reaches its API",
                f"pulumi config set --path '{key}' <your address>/32 -s {STACK}",
            )


def _ask_aws(
    stack: Stack, clusters: Mapping[str, AwsCluster], store: StoreSettings | None
) -> Iterator[Observation]:
    from botocore.exceptions import ClientError  # noqa: PLC0415

    account = signed_in(text(stack.configuration.get("aws:profile")), region_of(stack))
    try:
        # Needs no permission: docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html
        caller = account.call("sts", "get_caller_identity")
    except ClientError as error:
        yield wrong(SIGN_IN, f"fails: {error}", account.login)
        return
    except _FailedError as error:
        yield error.observation
        yield unknown(
            "account, permissions, quotas and instance types", "were not asked for: AWS could not be signed in to"
        )
        return
    yield fine(SIGN_IN, f"works, as {caller['Arn']}")
    yield from _account_of(stack, text(caller["Account"]))
    for subject, check in (
        (ACTIONS, _actions(stack, account, text(caller["Arn"]))),
        (QUOTAS, _quotas(stack, account)),
        (BUCKET, _bucket(store, clusters, account, text(caller["Account"]))),
        (OFFERS, _offers(clusters, account)),
    ):
        try:
            yield from check
        except (ClientError, _FailedError) as error:
            yield unknown(subject, f"could not be told: {error}")


@cache
def signed_in(profile: str, region: str) -> Account:
    """The account, asked once: its clients are kept."""
    return Account(profile, region)


def _account_of(stack: Stack, account: str) -> Iterator[Observation]:
    allowed = [str(account_id) for account_id in items(stack.configuration.get("aws:allowedAccountIds"))]
    forbidden = [str(account_id) for account_id in items(stack.configuration.get("aws:forbiddenAccountIds"))]
    if (allowed and account not in allowed) or account in forbidden:
        which = f"allows {', '.join(allowed)}" if allowed else "forbids it"
        yield wrong(ACCOUNT, f"is {account}, and the stack {which}", "aws configure list-profiles")
    elif allowed:
        yield fine(ACCOUNT, f"is {account}, as the stack has it")
    else:
        yield unknown(
            ACCOUNT,
            f"is {account}; whether that is the right one the stack does not say",
            f"pulumi config set --path 'aws:allowedAccountIds[0]' {account} -s {STACK}",
        )


def _actions(stack: Stack, account: Account, caller: str) -> Iterator[Observation]:
    """Source: docs.aws.amazon.com/IAM/latest/APIReference/API_SimulatePrincipalPolicy.html, November 2026."""
    from botocore.exceptions import ClientError  # noqa: PLC0415

    rules = _rules()
    types = {resource.type for resource in stack.resources.values() if resource.custom and not resource.read}
    needed = sorted({action for type_ in types & rules.keys() for action in rules[type_]})
    if not needed:
        return
    source, denied = principal(caller), list[str]()
    if source.endswith(":root"):
        yield fine(ACTIONS, "are those of the account's root user, who may do everything")
        return
    for start in range(0, len(needed), BATCH):
        try:
            simulated = account.call(
                "iam",
                "simulate_principal_policy",
                PolicySourceArn=source,
                ActionNames=needed[start : start + BATCH],
                MaxItems=1000,
            )
        except ClientError as error:
            see = f"aws iam list-attached-role-policies --role-name {source.rpartition('/')[2]}"
            yield unknown(ACTIONS, f"could not be told for {source}: {error}", see)
            return
        denied += [
            text(result.get("EvalActionName"))
            for result in mappings(simulated.get("EvaluationResults"))
            if result.get("EvalDecision") != "allowed"
        ]
    if denied:
        kind, _, name = source.rpartition(":")[2].partition("/")
        yield wrong(
            ACTIONS,
            f"of {source} lack {', '.join(denied)}",
            f"aws iam attach-{kind}-policy --{kind}-name {name.rpartition('/')[2]} "
            "--policy-arn <a policy with these>",
        )
    else:
        yield fine(ACTIONS, f"of {source} include the {len(needed)} actions asked about")


def principal(caller: str) -> str:
    """The user or role whose policies hold for a caller.

    A session ``arn:aws:sts::111122223333:assumed-role/deploy/me`` has those of ``…:iam::…:role/deploy``. The
    path of a role is not in it; roles of IAM Identity Center have one that is known.
    """
    head, _, rest = caller.partition(":assumed-role/")
    if not rest:
        return caller
    role = rest.partition("/")[0]
    path = "aws-reserved/sso.amazonaws.com/" if role.startswith("AWSReservedSSO_") else ""
    return f"{head.replace(':sts:', ':iam:')}:role/{path}{role}"


def _quotas(stack: Stack, account: Account) -> Iterator[Observation]:
    """Limits against what the stack needs; what else the account uses is in no answer."""
    enough = 0
    for quota in stack.quotas:
        if not quota.known:
            yield unknown(QUOTAS, f"no source says which counts the {quota.metric} ({quota.where})", quota.see)
        if len(quota.key) != 3:
            continue
        service, code, region = quota.key
        limit = _limit(account, service, code, region)
        if limit is None:
            yield unknown(QUOTAS, f"{quota.metric} ({quota.where}) could not be read", quota.see)
        elif limit < quota.needed:
            yield wrong(
                QUOTAS,
                f"{quota.metric} ({quota.where}) is {limit:g}; the stack needs up to {quota.needed:g} "
                f"{quota.unit}",
                f"aws service-quotas request-service-quota-increase --service-code {service} --quota-code {code} "
                f"--region {region} --desired-value {_round_up(quota)}",
            )
        else:
            enough += 1
    if enough:
        yield fine(QUOTAS, f"{enough} of {len(stack.quotas)} are large enough for every pool at its largest")
        yield unknown(QUOTAS, "are also used by whatever else the account runs, which was not counted")


def _round_up(quota: Quota) -> str:
    return f"{int(-(-quota.needed // 1))}"


def _limit(account: Account, service: str, code: str, region: str) -> float | None:
    """The account's limit, or AWS's default; None where neither may be read or is there.

    Source: docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_GetServiceQuota.html, November 2026.
    """
    from botocore.exceptions import ClientError  # noqa: PLC0415

    for operation in ("get_service_quota", "get_aws_default_service_quota"):
        try:
            answer = account.call("service-quotas", operation, region, ServiceCode=service, QuotaCode=code)
        except ClientError as error:
            if text(error.response.get("Error", {}).get("Code")) in DENIED:
                return None
            continue
        return float(answer["Quota"]["Value"])
    return None


def _bucket(
    store: StoreSettings | None, clusters: Mapping[str, AwsCluster], account: Account, owner: str
) -> Iterator[Observation]:
    """Whether the store's bucket, where the stack does not create it, can be used, and who else reads it.

    Sources: docs.aws.amazon.com/AmazonS3/latest/API (HeadBucket, GetBucketVersioning, GetBucketPolicyStatus) and
    docs.aws.amazon.com/AmazonS3/latest/userguide/s3-files-prereq-policies.html, November 2026.
    """
    from botocore.exceptions import ClientError  # noqa: PLC0415

    if not isinstance(store, ExistingS3Store) or not clusters:
        return
    region, bucket = next(iter(clusters.values())).region, f"s3://{store.bucket}"
    named = {"Bucket": store.bucket, "ExpectedBucketOwner": owner}
    try:
        head = account.call("s3", "head_bucket", region, **named)
    except ClientError as error:
        see = f"aws s3api head-bucket --bucket {store.bucket}"
        yield wrong(BUCKET, f"{bucket} is not there, in another account, or not for you to see ({error})", see)
        return
    observations: list[Observation] = []
    if (place := text(head.get("BucketRegion"))) and place != region:
        said = f"{bucket} is in {place}, and the cluster in {region}; S3 Files mounts a bucket in its own region"
        observations.append(wrong(BUCKET, said, f"choose a bucket in {region}"))
    if account.call("s3", "get_bucket_versioning", region, **named).get("Status") != "Enabled":
        fix = f"aws s3api put-bucket-versioning --bucket {store.bucket} --versioning-configuration Status=Enabled"
        observations.append(wrong(BUCKET, f"{bucket} keeps no versions, and S3 Files needs them", fix))
    if _is_public(account, region, named):
        block = "BlockPublicPolicy=true,RestrictPublicBuckets=true"
        fix = (
            f"aws s3api put-public-access-block --bucket {store.bucket} "
            f"--public-access-block-configuration {block}"
        )
        observations.append(
            wrong(BUCKET, f"{bucket} is public: its policy lets everybody in to what steps write", fix)
        )
    yield from observations
    if not observations:
        yield fine(BUCKET, f"{bucket} is there, keeps versions, and no policy makes it public")


def _is_public(account: Account, region: str, named: Mapping[str, str]) -> bool:
    """Whether the bucket's policy lets everybody in; a bucket without a policy has no status."""
    from botocore.exceptions import ClientError  # noqa: PLC0415

    try:
        status = account.call("s3", "get_bucket_policy_status", region, **named)
    except ClientError as error:
        if text(error.response.get("Error", {}).get("Code")) == "NoSuchBucketPolicy":
            return False
        raise
    return bool(status["PolicyStatus"]["IsPublic"])


def _offers(clusters: Mapping[str, AwsCluster], account: Account) -> Iterator[Observation]:
    """Whether the zones of each pool have its instance type, for this account.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTypeOfferings.html, November
    2026.
    """
    lacking = count = 0
    for name, cluster in clusters.items():
        for key, pool in cluster.pools.items():
            zones = pool.zones or cluster.zones or []
            for by_id in (True, False):
                wanted = [zone for zone in zones if ("-az" in zone) == by_id]
                if not wanted:
                    continue
                names = _zones_with(account, pool.instance_type, cluster.region, by_id=by_id)
                count += 1
                if names.isdisjoint(wanted):
                    lacking += 1
                    yield wrong(
                        OFFERS,
                        f"pool `{name}.{key}`: {', '.join(wanted)} do not offer {pool.instance_type}; "
                        f"{', '.join(sorted(names)) or 'no zone of the region'} do",
                        f"pulumi config set --path 'slipway:clusters.{name}.pools.{key}.zones[0]' <zone> "
                        f"-s {STACK}",
                    )
    if count and not lacking:
        yield fine(OFFERS, "are offered in the zones of every pool")


def supply(stack: Stack, pool: NodePool) -> Supply:
    """What AWS has for one node of ``pool``; what else the account uses of a quota is in no answer."""
    from botocore.exceptions import ClientError  # noqa: PLC0415

    account = signed_in(text(stack.configuration.get("aws:profile")), region_of(stack))
    try:
        limits = [_limit(account, *quota.key) if len(quota.key) == 3 else None for quota in pool.quotas]
    except _FailedError as error:
        return Supply(unknown=f"{error.observation.subject} {error.observation.said}")
    standings = [Standing(quota, limit) for quota, limit in zip(pool.quotas, limits, strict=True)]
    region = text(stack.resources[pool.urn].properties.get("region"))
    by_id = any("-az" in zone for zone in pool.zones)
    try:
        names = _zones_with(account, pool.machine, region, by_id=by_id) if pool.zones else set[str]()
    except (ClientError, _FailedError):
        return Supply(standings)
    return Supply(standings, [zone for zone in pool.zones if zone in names] if pool.zones else None)


def _zones_with(account: Account, machine: str, region: str, *, by_id: bool) -> set[str]:
    """The zones of the region that offer a machine type, by their ids or names."""
    answer = account.call(
        "ec2",
        "describe_instance_type_offerings",
        region,
        LocationType="availability-zone-id" if by_id else "availability-zone",
        Filters=[{"Name": "instance-type", "Values": [machine]}],
    )
    return {text(offering.get("Location")) for offering in mappings(answer.get("InstanceTypeOfferings"))}


@cache
def _rules() -> Mapping[str, Sequence[str]]:
    actions = tomllib.loads(DATA.read_text(encoding="utf-8"))["actions"]
    return {name: texts(action) for name, action in actions.items()}


# Not asked for: Spot prices, which are a statistic of a day. Formats, seen in November 2026: the CSV file of
# docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html, and
# docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTypeOfferings.html.
PRICE_LIST = "https://pricing.us-east-1.amazonaws.com"

ORDINARY = {
    "TermType": "OnDemand",
    "Unit": "Hrs",
    "Currency": "USD",
    "Operating System": "Linux",
    "Tenancy": "Shared",
    "License Model": "No License required",
    "CapacityStatus": "Used",
    "Pre Installed S/W": "NA",
}
"""The columns of the one row of an instance type that has its ordinary price. Other rows are of other licences, of
dedicated hosts or of reservations."""


def refresh(files: AcceleratorFiles, today: date) -> None:
    """Writes prices and zones into ``files``. Raises RefreshError, and what `requests` raises."""
    _refresh_prices(files)
    _refresh_zones(files, today)


def price_list(region: str) -> tuple[date, dict[str, float]]:
    """When the list of a region was published, and what each instance type costs there for an hour."""
    import requests  # noqa: PLC0415

    url = f"{PRICE_LIST}/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"
    with requests.get(url, stream=True, timeout=LIST_TIMEOUTS) as answer:
        answer.raise_for_status()
        rows = csv.reader(line.decode("utf-8") for line in answer.iter_lines())
        about = dict(next(rows) for _ in range(5))
        names = next(rows)
        prices: dict[str, float] = {}
        for values in rows:
            row = dict(zip(names, values, strict=False))
            if all(row[column] == value for column, value in ORDINARY.items()) and float(row["PricePerUnit"]) > 0:
                prices[row["Instance Type"]] = round(float(row["PricePerUnit"]), 5)
    if not prices:
        raise RefreshError(f"the price list of {region} has no instance type")
    return datetime.fromisoformat(about["Publication Date"]).date(), prices


def _refresh_prices(files: AcceleratorFiles) -> None:
    """On demand, of the rows that there are."""
    rows = [sold.get("prices", {}).get("machines", {}) for _, sold in files.sold_by("aws")]
    prices: Prices = {}
    days: list[date] = []
    for region in sorted({region for machines in rows for by_region in machines.values() for region in by_region}):
        day, amounts = price_list(region)
        days.append(day)
        prices |= {(name, region): {"on_demand": amount} for name, amount in amounts.items()}
    files.put_prices("aws", "machines", prices, "aws_price_list")
    url = f"{PRICE_LIST}/offers/v1.0/aws/AmazonEC2/current/index.json"
    files.cite(files.prices("aws"), "sources.aws_price_list", url, "date", min(days))


def _refresh_zones(files: AcceleratorFiles, today: date) -> None:
    """Of the types whose zones are recorded. A region that the account has not opted in to keeps its zones."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415
    from botocore.session import Session  # noqa: PLC0415

    types = sorted({name for _, sold in files.sold_by("aws") for name in sold.get("offered", {})})
    zones: dict[str, set[str]] = {name: set() for name in types}
    answering: set[str] = set()
    session = Session()
    for region in filter(catalogue.records, catalogue.regions()):
        query = {"LocationType": "availability-zone-id", "Filters": [{"Name": "instance-type", "Values": types}]}
        try:
            client = session.create_client("ec2", region_name=region)
            pages = client.get_paginator("describe_instance_type_offerings").paginate(**query)
            offerings = [offering for page in pages for offering in page["InstanceTypeOfferings"]]
        except NoCredentialsError:
            files.left.append("zones of AWS: this machine is not signed in to it")
            return
        except ClientError as error:
            files.left.append(f"zones of {region}: {error}")
            continue
        except BotoCoreError as error:
            raise RefreshError(f"EC2 in {region} cannot be asked ({type(error).__name__})") from error
        answering.add(region)
        for offering in offerings:
            zones[offering["InstanceType"]].add(offering["Location"])
    for path, sold in list(files.sold_by("aws")):
        for name, facts in sold.get("offered", {}).items():
            kept = {zone for zone in facts["zones"] if catalogue.region_of(zone) not in answering}
            after = sorted(kept | {zone for zone in zones[name] if catalogue.region_of(zone)})
            files.put_zones(path, f'aws.offered."{name}"', facts["zones"], after)
        if sold.get("offered") and answering:
            files.set(path, "aws.sources", "zones", '["aws_offerings"]')
            url = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTypeOfferings.html"
            files.cite(files.sources, "aws_offerings", url, "read", today)
