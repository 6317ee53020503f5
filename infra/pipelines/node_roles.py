"""TensorFlow's roles of the pods of one training, and which of them can be together."""

from collections.abc import Iterator, Mapping

from infra.schema.problems import listed

CHIEF, WORKER, PS, EVALUATOR = ROLES = ("chief", "worker", "ps", "evaluator")
"""The roles of `tf.distribute.cluster_resolver.TFConfigClusterResolver` and of Kubeflow's TFJob
(www.tensorflow.org/guide/distributed_training, "TF_CONFIG", seen November 2026)."""

ONCE = (CHIEF, EVALUATOR)
"""Roles that one pod at most can have."""

OTHER_NAMES: Mapping[str, str] = {
    "master": CHIEF,
    "parameterserver": PS,
    "parameter_server": PS,
    "parameter-server": PS,
    "server": PS,
    "eval": EVALUATOR,
    "slave": WORKER,
}
"""What else the roles are called: TFJob's `Master` is the chief."""


def meant(role: str) -> str | None:
    """The role that ``role``, which is none, is another name of; None where it is no role's."""
    lower = role.lower()
    found = OTHER_NAMES.get(lower, lower.removesuffix("s") if lower not in ROLES else lower)
    return found if found in ROLES else None


def unsuitable(roles: Mapping[str, int], count: int) -> Iterator[tuple[str, str]]:
    """Why pods with these ``roles``, known ones, are not the ``count`` pods of one training, each with a fix."""
    for role in ONCE:
        if roles.get(role, 0) > 1:
            yield f"{roles[role]} pods with the role `{role}`, of which there is one at most", f"write `{role}: 1`"
    if not roles.get(CHIEF) and not roles.get(WORKER):
        yield (
            f"none of the pods trains: {listed(roles, 'and')} never end by themselves",
            f"add `{WORKER}`, with a number of pods",
        )
    there = sum(roles.values())
    if there != count:
        without = there - roles.get(WORKER, 0)
        fix = f"write `count: {there}`"
        yield (
            f"the roles are those of {there} pods, and the step runs on {count} nodes",
            f"{fix}, or `{WORKER}: {count - without}`" if count > without else fix,
        )


def resized(roles: Mapping[str, int], count: int) -> dict[str, int]:
    """``roles`` for ``count`` pods: workers are added or left out. There may be too few of them: none, or less."""
    if not roles:
        return {}
    missing = count - sum(roles.values())
    return dict(roles) if not missing else {**roles, WORKER: roles.get(WORKER, 0) + missing}


def fewest(roles: Mapping[str, int]) -> int:
    """The least number of pods for which `resized` leaves a worker, or the roles as they are where none has it."""
    others = sum(amount for role, amount in roles.items() if role != WORKER)
    return others + 1 if WORKER in roles else others
