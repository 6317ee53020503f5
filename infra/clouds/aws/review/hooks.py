"""All of it in one place."""

from infra.clouds.aws.review.charges import charges
from infra.clouds.aws.review.holdings import holding
from infra.clouds.aws.review.identities import endpoints, identities
from infra.clouds.aws.review.policies import POLICIES
from infra.clouds.aws.review.pools import pools
from infra.clouds.aws.review.quotas import quotas
from infra.clouds.aws.review.replacements import SOMETIMES, in_place, replacing
from infra.clouds.aws.review.times import creation
from infra.review.contract import Review

REVIEW = Review(
    pools=pools,
    charges=charges,
    quotas=quotas,
    policies=POLICIES,
    replacing=replacing,
    holding=holding,
    creation=creation,
    in_place=in_place,
    sometimes=SOMETIMES,
    # Every update makes a new version, which its node group then takes.
    moving=frozenset({"aws:ec2/launchTemplate:LaunchTemplate"}),
    identities=identities,
    endpoints=endpoints,
)
