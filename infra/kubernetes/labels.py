"""The labels that every resource of the program carries, in the names that Kubernetes recommends for them
(kubernetes.io/docs/concepts/overview/working-with-objects/common-labels)."""

NAME = "app.kubernetes.io/name"

PART_OF = {"app.kubernetes.io/part-of": "slipway", "app.kubernetes.io/managed-by": "pulumi"}


def step_labels(pipeline: str, step: str) -> dict[str, str]:
    """Labels of what belongs to one step."""
    return {**PART_OF, NAME: pipeline, "app.kubernetes.io/component": step}
