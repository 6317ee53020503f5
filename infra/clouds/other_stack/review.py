"""What a preview says of clusters of another stack: nothing of them is this stack's, or billed to it."""

from infra.review.contract import Review

REVIEW = Review()
