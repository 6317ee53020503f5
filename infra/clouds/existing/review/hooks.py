"""All of it in one place."""

from infra.clouds.existing.review.charges import charges
from infra.clouds.existing.review.identities import identities
from infra.clouds.existing.review.policies import POLICIES
from infra.clouds.existing.review.pools import pools
from infra.clouds.existing.review.quotas import quotas
from infra.clouds.existing.review.replacements import replacing
from infra.clouds.existing.review.times import creation
from infra.review.contract import Review

REVIEW = Review(
    pools=pools,
    charges=charges,
    quotas=quotas,
    policies=POLICIES,
    replacing=replacing,
    creation=creation,
    identities=identities,
)
