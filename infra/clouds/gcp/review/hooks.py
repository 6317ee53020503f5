"""All of it in one place."""

from infra.clouds.gcp.review.charges import charges
from infra.clouds.gcp.review.holdings import holding
from infra.clouds.gcp.review.identities import endpoints, identities
from infra.clouds.gcp.review.policies import POLICIES
from infra.clouds.gcp.review.pools import pools
from infra.clouds.gcp.review.quotas import quotas
from infra.clouds.gcp.review.replacements import SOMETIMES, computed, in_place, replacing
from infra.clouds.gcp.review.times import creation
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
