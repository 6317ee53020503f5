"""All of it in one place."""

from infra.aws.review.charges import charges
from infra.aws.review.policies import POLICIES
from infra.aws.review.pools import pools
from infra.aws.review.quotas import quotas
from infra.aws.review.replacing import replacing
from infra.aws.review.times import creation
from infra.review import Review

REVIEW = Review(
    pools=pools, charges=charges, quotas=quotas, policies=POLICIES, replacing=replacing, creation=creation
)
