"""All of it in one place."""

from infra.existing.review.charges import charges
from infra.existing.review.identities import identities
from infra.existing.review.policies import POLICIES
from infra.existing.review.pools import pools
from infra.existing.review.quotas import quotas
from infra.existing.review.replacing import replacing
from infra.existing.review.times import creation
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
