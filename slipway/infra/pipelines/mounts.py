"""Where a program that was written elsewhere starts, and what it finds at paths of its own choice: the keys
`directory` and `mounts` of a step.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field

from slipway.infra.pipelines import pods
from slipway.infra.pipelines.pods import ProgramMount, Source
from slipway.infra.schema.base import Model, refuse
from slipway.infra.schema.paths import absolute_problem, below_problem
from slipway.infra.schema.problems import Finding, Path, listed, nearest

SCRATCH = "scratch"
"""The reference to a folder below `$TMPDIR`, which is gone with the pod."""

OURS = ("/bundle", "/folders", "/packages", "/store", "/tmp")
"""Where the pods of steps have mounts of Slipway's."""

OF_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/var/run"),
    *("/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/bin", "/usr/local/lib", "/usr/sbin"),
)
"""Folders without which an image starts no program, or that the container runtime fills."""

CLOSED = "/root"
"""Only root enters it, in most images; as a mount itself it is open."""

_SOURCE = re.compile(r"\{(?P<name>[^{}]+)\}(?:/+(?P<below>.+?))?/*", re.DOTALL)


def source_of(text: str) -> Source | None:
    """What ``text`` refers to; None where it is no reference with a path behind it."""
    match = _SOURCE.fullmatch(text)
    return Source(match["name"], match["below"] or "") if match else None


def _section(value: Any) -> Any:
    """The section that a text stands for: ``folder: "{store}"`` for ``"{store}"``."""
    if isinstance(value, str):
        return {"folder": value}
    if not isinstance(value, dict):
        raise refuse("neither a folder nor a section", 'write a folder, `"{store}"`, or a section with `folder`')
    return cast("dict[Any, Any]", value)


class Mount(Model):
    """A folder at a path of the program's choice. The program may write to that of its `{output}` and to
    `{scratch}`, and reads the others.
    """

    folder: str = Field(
        description="`{store}`, `{<step>}`, `{<input>}`, `{output}` or `{scratch}`, or a folder below: "
        "`{store}/uploads`."
    )
    write: bool = Field(
        default=False,
        description="Whether it may write to a folder of the store. What it writes there is no part of its "
        "result: no manifest has it, and other steps and attempts may write to it, too.",
    )


Mounted = Annotated[Mount, BeforeValidator(_section, json_schema_input_type=str | Mount)]
"""A mount: a section, or the folder alone."""

Mountable = Mapping[str, tuple[str, str] | None]
"""The references that mounts of a step may have; reason and fix where one of them cannot be mounted."""


def declare(mounts: Mapping[str, Mount]) -> tuple[ProgramMount, ...]:
    """The mounts of a step of a ``pipeline.yaml``, those that can be read."""
    declared: list[ProgramMount] = []
    for path, mount in mounts.items():
        source = source_of(mount.folder)
        if source is not None:
            writable = mount.write or source.name in {pods.OUTPUT, SCRATCH}
            declared.append(ProgramMount(normal(path), source, writable))
    return tuple(declared)


def references(mounts: Mapping[str, Mount], directory: str | None) -> list[str]:
    """What the mounts and the directory of a step refer to, but for its scratch space."""
    texts = [*(mount.folder for mount in mounts.values()), *([directory] if directory else [])]
    return [name for text in texts for name in pods.names(text) if name != SCRATCH]


def normal(path: str) -> str:
    """``path`` without a slash at its end."""
    return path.rstrip("/") or "/"


def covers(outer: str, path: str) -> bool:
    """Whether ``path`` is ``outer`` or below it."""
    return path == outer or path.startswith(f"{outer}/")


def path_problem(path: str) -> tuple[str, str] | None:
    """Reason and fix where nothing can be mounted at ``path``."""
    fix = "write a path of the program's own, such as `/data`"
    if why := absolute_problem(path):
        return f"no path that a pod can mount a folder at: {why}", fix
    if not path.isprintable() or set(path) & set(":{}"):
        return "no path that a pod can mount a folder at: it has `:`, a brace, or what cannot be printed", fix
    at = normal(path)
    for place in OURS:
        if covers(place, at):
            return f"`{place}` of a step's pod is Slipway's own", f"{fix}; `$TMPDIR` is there already"
    for place in OF_SYSTEM:
        if covers(place, at) or covers(at, place):
            return f"a mount there would hide or change `{place}`, which the image needs", fix
    if at != CLOSED and covers(CLOSED, at):
        reason = f"pods do not run as root, and only root can enter `{CLOSED}` of most images"
        return reason, f"write `{CLOSED}` itself, or another path; `$HOME` of a step is `$TMPDIR`"
    return None


def findings(
    at: Path, mounts: Mapping[str, Mount], directory: str | None, mountable: Mountable
) -> Iterator[Finding]:
    """Findings about `mounts` and `directory` of the step at ``at``."""
    place = (*at, "mounts")
    paths: list[str] = []
    for path, mount in mounts.items():
        if problem := path_problem(path):
            yield Finding((*place, path), path, *problem)
        else:
            for other in paths:
                if covers(normal(other), normal(path)) or covers(normal(path), normal(other)):
                    reason = f"one of the mounts `{other}` and `{path}` is at or below the other"
                    fix = "write two folders side by side, or one mount for both"
                    yield Finding((*place, path), path, reason, fix, read=((*place, other),))
            paths.append(path)
        yield from _mount((*place, path), mount, mountable)
    if directory is not None:
        yield from _directory((*at, "directory"), directory, mounts, mountable)


def _mount(at: Path, mount: Mount, mountable: Mountable) -> Iterator[Finding]:
    source = source_of(mount.folder)
    if source is None:
        reason = "not a folder of the store, of another step or of this one"
        fix = f"begin it with {_references(mountable)}: `{{store}}/uploads`"
        yield Finding(at, mount.folder, reason, fix, read=((*at, "folder"),))
        return
    if reason := _below_problem(source):
        yield Finding(at, mount.folder, reason, "write the names of folders, with `/` between them")
        return
    if source.name not in mountable:
        near = nearest(source.name, mountable)
        fix = f"did you mean `{{{near}}}`?" if near else f"write one of {_references(mountable)}"
        read = (("steps", source.name), ("inputs", source.name))
        yield Finding(at, mount.folder, f"nothing that can be mounted is called `{source.name}`", fix, read)
        return
    if problem := mountable[source.name]:
        yield Finding(at, mount.folder, *problem, read=(("steps", source.name),))
    elif mount.write and source.name not in {pods.STORE, pods.OUTPUT, SCRATCH}:
        reason = f"`{{{source.name}}}` is the result of another step or an input, which stays as it is"
        fix = "remove `write`, and let the program write to `{output}`"
        yield Finding((*at, "write"), mount.write, reason, fix)


def _directory(at: Path, directory: str, mounts: Mapping[str, Mount], mountable: Mountable) -> Iterator[Finding]:
    places = [path for path in mounts if path_problem(path) is None]
    others = f", or a path of `mounts`: {listed(places)}" if places else ""
    fix = f"write `{{{pods.OUTPUT}}}`, `{{{SCRATCH}}}` or a folder below one of them{others}"
    read = ((*at[:-1], "mounts"),)
    source = source_of(directory)
    if source is None:
        why = absolute_problem(directory)
        if why or not any(covers(normal(path), normal(directory)) for path in places):
            reason = "a program starts in its own output, in scratch space, or in one of its mounts"
            yield Finding(at, directory, reason, fix, read)
    elif source.name not in {pods.OUTPUT, SCRATCH}:
        reason = f"a program cannot start in `{{{source.name}}}`, which it may only read"
        mount = f'; or mount it: `mounts: {{/work: "{source.text}"}}` with `directory: /work`'
        yield Finding(at, directory, reason, fix + mount, read)
    elif reason := _below_problem(source):
        yield Finding(at, directory, reason, fix)
    elif source.name == SCRATCH and (problem := mountable[SCRATCH]):
        yield Finding(at, directory, *problem, read=(("steps", SCRATCH),))


def _below_problem(source: Source) -> str | None:
    """What keeps the path behind a reference from being that of a folder; None where nothing does."""
    if not source.below:
        return None
    why = "only its beginning can be a reference" if set("{}") & set(source.below) else below_problem(source.below)
    return f"`{source.below}` is no folder below `{{{source.name}}}`: {why}" if why else None


def _references(mountable: Mountable) -> str:
    return listed([f"{{{name}}}" for name, problem in mountable.items() if problem is None])
