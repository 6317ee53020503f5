"""All of it in one place. Nodes and quotas are the clouds' to know."""

from infra.kubernetes.review.charges import charges
from infra.kubernetes.review.holdings import holding
from infra.kubernetes.review.replacements import in_place, replacing
from infra.kubernetes.review.times import creation
from infra.review.contract import Review


def _nothing(_: object) -> tuple[()]:
    return ()


REVIEW = Review(
    pools=_nothing,
    charges=charges,
    quotas=_nothing,
    policies=(),
    replacing=replacing,
    holding=holding,
    creation=creation,
    in_place=in_place,
)
