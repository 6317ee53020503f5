"""What an app is told of the runs of its pipeline: by which commit, on which pools and at what price.

A pod of a step cannot be told the commit: each commit would run its Job again. So the app has it, in a ConfigMap
that its pod reads anew while it runs. Its commit is the last one that changed something from which the runs are
declared, so that other commits change nothing of a stack.
"""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.pods.limits import kept_after
from slipway.infra.kubernetes.run import Run
from slipway.infra.pipelines.apps import RUNS
from slipway.infra.pipelines.file.shape import NAMES
from slipway.infra.placed import CODE, Step
from slipway.infra.places import LIBRARY, PACKAGE, PROJECT
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit

FILE = "runs.json"
"""`{"stack": …, "commit": …, "changed": …, "runs": {<path of the result>: {"pool": …, "rate": …, "prices": …,
"kept": …}}}`, the last three (`slipway.workloads.runtime.history.FACTS`) where the price is known. Of a step with
places they stand by pool in `pools`."""

DECLARING = (Path("infra"),) if LIBRARY == PROJECT else (Path("requirements.txt"),)
"""The code that makes Jobs of steps; a project has its version in the lock file."""


@dataclass(frozen=True)
class DeclaredRuns:
    """The pools and prices of a pipeline's runs, by the directories of their results below the store's root.

    ``sources`` are the files and folders that the pipeline and its programs are in, relative ones below the
    repository.
    """

    runs: Mapping[str, Mapping[str, Any]]
    sources: frozenset[Path]

    @classmethod
    def of(cls, pipeline: str, runs: Iterable[Run]) -> "DeclaredRuns":
        """Those of ``runs`` that are steps of ``pipeline`` itself."""
        steps = [run for run in runs if run.step.pipeline == pipeline and run.step.is_own]
        declared = {run.path: _of_nodes(run.step) for run in sorted(steps, key=lambda run: run.path)}
        return cls(declared, frozenset(source for run in steps for source in _sources(run)))

    def declare(
        self, name: str, root: Path, namespace: str, labels: Mapping[str, str], opts: pulumi.ResourceOptions
    ) -> k8s.core.v1.ConfigMap:
        """Declares it for the app ``name``, with the commit of the repository at ``root``.

        It keeps its name with other runs, so that the pod which has it mounted stays. It is not immutable: of one
        that is, the kubelet would not look for another one of that name
        (kubernetes.io/docs/concepts/configuration/configmap, November 2026).
        """
        stack = pulumi.get_stack()
        sources = sorted({*self.sources, *DECLARING, Path("stacks", f"Pulumi.{stack}.yaml")})
        content = {"stack": stack, **revision(root, sources), "runs": self.runs}
        return k8s.core.v1.ConfigMap(
            map_name(name),
            metadata=k8s.meta.v1.ObjectMetaArgs(name=map_name(name), namespace=namespace, labels=dict(labels)),
            data={FILE: json.dumps(content, indent=2)},
            opts=opts,
        )


def map_name(name: str) -> str:
    """Logical and Kubernetes name of the ConfigMap of the app ``name``."""
    return fit(f"{name}-{RUNS}", KUBERNETES_NAME_LIMIT)


def runs_volume(name: str) -> k8s.core.v1.VolumeArgs:
    """The pod volume with the file, of the app ``name``.

    A directory: the kubelet brings a volume up to date within some 2 minutes, and never a single file that is
    mounted by `subPath` (kubernetes.io/docs/concepts/configuration/configmap, November 2026).
    """
    return k8s.core.v1.VolumeArgs(
        name=RUNS,
        config_map=k8s.core.v1.ConfigMapVolumeSourceArgs(
            name=map_name(name), default_mode=0o444, items=[k8s.core.v1.KeyToPathArgs(key=FILE, path=FILE)]
        ),
    )


def _of_nodes(step: Step) -> dict[str, Any]:
    """The pool of its nodes, what an hour of one of its pods costs (of the node that it holds or, where pods are
    billed, of the pod), and for how long a node with GPUs that comes and goes is kept after its last pod.
    """
    if step.places:
        return {"pools": {place.pool.name: _price(place) for place in step.places.steps}}
    return {"pool": step.pool.name, **_price(step)}


def _price(step: Step) -> dict[str, Any]:
    kept = kept_after(step) if step.pool.accelerator else None
    rate = step.rate
    known = {"rate": rate and rate.dollars, "prices": rate and rate.day, "kept": kept}
    return {name: value for name, value in known.items() if value is not None}


def _sources(run: Run) -> Iterator[Path]:
    """Where what decides the result of ``run`` is: whole folders, for a file may be added or taken away."""
    step: Step = run.step
    if step.command:
        yield _pipeline_folder(step.command.code)
    # Of the paths below the project, and in the package's repository: `workloads/mnist`, `workloads/runtime`.
    for path in run.bundle.outside(CODE).contents:
        parts = Path(path).parts
        yield Path(*(parts[1:3] if parts[0] == PACKAGE else parts[:2]))
    yield from (*step.folders.values(), *step.attached.values())


def _pipeline_folder(code: Path) -> Path:
    """The folder with the ``pipeline.yaml`` of the folder ``code``, which is that one or below it."""
    folders = (code, *code.parents)
    return next((folder for folder in folders if any((folder / name).is_file() for name in NAMES)), code)


def revision(root: Path, sources: Sequence[Path] = ()) -> Mapping[str, Any]:
    """The commit that is checked out at ``root``, and whether files differ from it; empty where there is none.

    With ``sources``, files and folders, it is the last commit that changed one of them: since then they are as in
    that commit, whatever was merged. What of them is outside of the repository counts for nothing.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    if not top:
        return {}
    paths = [(root / source).resolve() for source in sources]
    tracked = [str(path) for path in paths if path.is_relative_to(Path(top).resolve())]
    commit = _git(root, "log", "-1", "--format=%H", "--", *tracked) or _git(root, "rev-parse", "HEAD")
    if not commit:
        return {}
    return {"commit": commit, "changed": bool(_git(root, "status", "--porcelain", "--", *tracked))}


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "--literal-pathspecs", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()
