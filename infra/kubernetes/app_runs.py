"""What an app is told of the runs of its pipeline: with which commit a stack declared them, and on which pools.

A pod of a step cannot be told the commit: each commit would run its Job again. So the app has it, in a ConfigMap
that is made when the runs change, and keeps what it was made with until they change again.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.kubernetes.run import Run
from infra.pipelines.apps import RUNS
from infra.schema.names import KUBERNETES_NAME_LIMIT, fit, short_digest

FILE = "runs.json"
"""`{"stack": …, "commit": …, "changed": …, "runs": {<path of the result>: {"pool": …}}}`."""


@dataclass(frozen=True)
class DeclaredRuns:
    """The pools of a pipeline's runs, by the directories of their results below the store's root."""

    pools: Mapping[str, str]

    @classmethod
    def of(cls, pipeline: str, runs: Iterable[Run]) -> "DeclaredRuns":
        """Those of ``runs`` that are steps of ``pipeline`` itself."""
        steps = [run for run in runs if run.step.pipeline == pipeline and run.step.is_own]
        return cls({run.path: run.step.pool.name for run in sorted(steps, key=lambda run: run.path)})

    def map_name(self, name: str) -> str:
        """Logical and Kubernetes name of the ConfigMap of the app ``name``: another one for other runs."""
        digest = hashlib.sha256(json.dumps(self.pools, sort_keys=True).encode()).hexdigest()
        return fit(f"{name}-{RUNS}-{short_digest(digest)}", KUBERNETES_NAME_LIMIT)

    def declare(
        self, name: str, root: Path, namespace: str, labels: Mapping[str, str], opts: pulumi.ResourceOptions
    ) -> k8s.core.v1.ConfigMap:
        """Declares it, with the commit of the repository at ``root``."""
        runs = {path: {"pool": pool} for path, pool in self.pools.items()}
        content = {"stack": pulumi.get_stack(), **revision(root), "runs": runs}
        # A later commit that declares the same runs did not make them.
        kept = pulumi.ResourceOptions(ignore_changes=["data"])
        return k8s.core.v1.ConfigMap(
            self.map_name(name),
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=self.map_name(name), namespace=namespace, labels=dict(labels)
            ),
            data={FILE: json.dumps(content, indent=2)},
            immutable=True,
            opts=pulumi.ResourceOptions.merge(opts, kept),
        )


def runs_volume(map_name: str) -> k8s.core.v1.VolumeArgs:
    """The pod volume with the file."""
    return k8s.core.v1.VolumeArgs(
        name=RUNS,
        config_map=k8s.core.v1.ConfigMapVolumeSourceArgs(
            name=map_name, default_mode=0o444, items=[k8s.core.v1.KeyToPathArgs(key=FILE, path=FILE)]
        ),
    )


def revision(root: Path) -> Mapping[str, Any]:
    """The commit that is checked out at ``root``, and whether files differ from it; empty where there is none."""
    commit = _git(root, "rev-parse", "HEAD")
    return {"commit": commit, "changed": bool(_git(root, "status", "--porcelain"))} if commit else {}


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], check=False, capture_output=True, text=True)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()
