"""All of it in one place."""

from infra.gcp.review.charges import charges
from infra.gcp.review.holdings import holding
from infra.gcp.review.identities import endpoints, identities
from infra.gcp.review.policies import POLICIES
from infra.gcp.review.pools import pools
from infra.gcp.review.quotas import quotas
from infra.gcp.review.replacing import SOMETIMES, computed, in_place, replacing
from infra.gcp.review.times import creation
from infra.review.contract import Review

REVIEW = Review(
    pools=pools,
    charges=charges,
    quotas=quotas,
    policies=POLICIES,
    replacing=replacing,
    computed=computed,
    holding=holding,
    creation=creation,
    in_place=in_place,
    sometimes=SOMETIMES,
    identities=identities,
    endpoints=endpoints,
)
