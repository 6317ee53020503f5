"""All of it in one place."""

from infra.aws.review.charges import charges
from infra.aws.review.holdings import holding
from infra.aws.review.identities import endpoints, identities
from infra.aws.review.policies import POLICIES
from infra.aws.review.pools import pools
from infra.aws.review.quotas import quotas
from infra.aws.review.replacing import SOMETIMES, in_place, replacing
from infra.aws.review.times import creation
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
