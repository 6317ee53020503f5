"""What a rehearsal notes of each result that it made, beside the manifest: with which commit, code and image."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from slipway import files
from slipway.features.history.results import FACTS
from slipway.infra.kubernetes.labels import RESULTS_ANNOTATION, RUN_ANNOTATION, data_of
from slipway.infra.kubernetes.run import MANIFEST
from slipway.infra.placed import CODE
from slipway.infra.review.stack import Resource, at, mappings, strings, text
from slipway.infra.version import git
from slipway.rehearse.cluster.cluster_objects import Objects, contents
from slipway.rehearse.state import JobRecord

BUNDLE = "bundle"
"""Name of the volume, in every pod of a step, with the files that it ships."""


@dataclass(frozen=True)
class Recorder:
    """Notes facts of the results in ``store``, that of rehearsals of ``stack`` in the checkout at ``root``."""

    store: Path
    stack: str
    root: Path

    @cached_property
    def _revision(self) -> Mapping[str, Any]:
        return revision(self.root)

    def add(self, job: Resource, record: JobRecord, objects: Objects) -> None:
        """Notes what is known of the result of ``job``, unless it was there before the Job ran."""
        annotations = strings(job.metadata.get("annotations"))
        path = annotations.get(RUN_ANNOTATION)
        if path is None:
            return
        try:
            if (self.store / path / MANIFEST).stat().st_mtime < record.started:
                return
        except OSError:
            return
        containers = mappings(at(job.inputs, "spec", "template", "spec", "containers"))
        facts = {
            **self._revision,
            "stack": self.stack,
            "pool": record.pool,
            "image": text(containers[0].get("image")) if containers else "",
            "began": record.started + record.pending,
            "ended": record.finished,
            "code": _code(job, record, objects),
            "results": json.loads(annotations.get(RESULTS_ANNOTATION, "[]")),
            "data": data_of(annotations),
        }
        files.write(self.store / FACTS / f"{path}.json", json.dumps(facts, indent=2) + "\n")


def revision(root: Path) -> Mapping[str, Any]:
    """The commit that is checked out at ``root``, and whether files differ from it; empty where there is none."""
    commit = git(root, "rev-parse", "--verify", "--quiet", "HEAD")
    return {"commit": commit, "changed": bool(git(root, "status", "--porcelain"))} if commit else {}


def _code(job: Resource, record: JobRecord, objects: Objects) -> dict[str, str]:
    """SHA-256 of the files that the step's own program has; of one without a program of its own, of all."""
    digests: dict[str, str] = {}
    for volume in mappings(at(job.inputs, "spec", "template", "spec", "volumes")):
        name = text(at(volume, "configMap", "name"))
        bundle = objects.find(record.cluster, "ConfigMap", record.namespace, name)
        if volume.get("name") == BUNDLE and bundle is not None:
            values = contents(bundle)
            for item in mappings(at(volume, "configMap", "items")):
                digests[text(item.get("path"))] = hashlib.sha256(values[text(item.get("key"))]).hexdigest()
    prefix = f"{CODE}/"
    program = {name.removeprefix(prefix): digest for name, digest in digests.items() if name.startswith(prefix)}
    return program or digests
