"""Where images are built, and which registry has them."""

from collections.abc import Iterator

from infra.schema.problems import Finding, Path, key_of, listed, nearest
from infra.settings.checks.targets import targets
from infra.settings.parsing import Reading
from infra.settings.pipelines import KEY as PIPELINES
from infra.settings.pipelines import apps_if_any, services_if_any, steps_if_any
from infra.settings.registry import KEY, RegistrySettings


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about builds without a registry, and about a registry that cannot have them."""
    found = reading.draft.registry
    if found is None:
        yield from _lacking(reading)
        return
    yield from _logins(reading, found)
    target = targets(reading.draft).get(found.pool)
    if target is None:
        return
    cluster = reading.draft.clusters[str(target.at[1])]
    at: Path = ("clusters", str(target.at[1]))
    if why := cluster.builds_problem:
        reason = f"pods that build images are refused there: {why}"
        fix = "take a pool of another cluster, or name images by digest in place of `build`"
        yield Finding((KEY, "pool"), found.pool, reason, fix, read=(at,))
    elif found.repository is None and not cluster.has_registry:
        reason = "the cluster brings no registry of its own"
        fix = "name the repository that images are pushed to: `registry.example.org/team/slipway`"
        yield Finding((KEY, "repository"), None, reason, fix, read=(at, (KEY, "pool")))


def _lacking(reading: Reading) -> Iterator[Finding]:
    """The programs of the first pipeline that has images built, where the stack has no registry."""
    for name, settings in reading.draft.pipelines.items():
        declared = (
            *steps_if_any(name, settings),
            *services_if_any(name, settings),
            *apps_if_any(name, settings),
        )
        building = [each.name for each in declared if each.build]
        if building:
            pools = [each for each, target in targets(reading.draft).items() if not target.pool.has_gpus]
            what = f"pipeline `{name}` builds the image of {listed(building[:3], 'and')}"
            example = f"`slipway:{KEY}: {{pool: {pools[0] if pools else '<a pool without GPUs>'}}}`"
            fix = f"write {example}, with `repository` for a registry that is not the cloud's own"
            yield Finding((KEY,), None, f"{what}, and nothing says where", fix, read=((PIPELINES, name),))
            return


def _logins(reading: Reading, found: RegistrySettings) -> Iterator[Finding]:
    """Logins that nothing sets, or that no registry wants."""
    there = reading.draft.secrets
    for key in ("login", "pull_login"):
        secret: str | None = getattr(found, key)
        if secret is None:
            continue
        if found.repository is None:
            reason = "the cloud's own registry takes the identity of the pods, and no login"
            yield Finding((KEY, key), secret, reason, "remove it, or name a `repository`")
        elif secret not in there:
            command = f"`pulumi config set --secret --path '{key_of(('secrets', secret))}'`"
            near = nearest(secret, there)
            known = f"the stack has `{near}`; correct one of the names, or " if near else ""
            reason = f"`{KEY}.{key}` needs it, and it is not set"
            yield Finding(("secrets", secret), None, reason, f"{known}set it with {command}", read=((KEY, key),))
