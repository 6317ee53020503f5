"""The workspace: what guards the namespace, and that it is there before and gone after the right things."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.existing.platforms import Emulator
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.platform import Egress
from slipway.infra.program import declare
from slipway.infra.settings.loading import load
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stand_in import platform


def workspace(
    *,
    preview: bool = False,
    protect: bool = False,
    make: Any = platform,
    egress: Sequence[Egress] | None = (),
) -> Recording:
    def program() -> None:
        Workspace("here", WorkspaceArgs(make(), "digits", "runner", protect, egress))

    return record(program, {}, preview=preview)


@pytest.mark.parametrize(
    ("steps", "schedule", "jobs"),
    [(12, {}, 12), (100, {}, 101), (40, {"schedule": {"cron": "0 3 * * *"}}, 7 * 40)],
)
def test_the_namespace_has_room_for_all_jobs_that_are_declared(
    tmp_path: Path, steps: int, schedule: Any, jobs: int
) -> None:
    lines = [f"  s{number}: {{run: [touch, '{{output}}/x']}}" for number in range(steps)]
    (tmp_path / "pipeline.yaml").write_text("\n".join(["description: Many.", "steps:", *lines]))
    pool = {"selector": {"a": "b"}, "cpu": "8", "memory": "32Gi"}
    values = {
        "clusters": {"here": {"cloud": "existing", "kubeconfig": "/nowhere", "pools": {"cpu": pool}}},
        "store": {"kind": "pvc"},
        "pipelines": {
            "many": {"uses": str(tmp_path), "steps": {f"s{n}": {"pool": "cpu"} for n in range(steps)}, **schedule}
        },
    }
    configuration = {f"slipway:{key}": value for key, value in values.items()}
    recording = record(
        lambda: declare(ROOT), configuration, preview=False, emulators=[Emulator(load(values).request)]
    )

    room = int(recording.one("kubernetes:core/v1:ResourceQuota").inputs["spec"]["hard"]["count/jobs.batch"])

    assert room % 100 == 0
    assert room >= max(jobs, len(recording.of("kubernetes:batch/v1:Job"))) + 10
    assert room == 100 or room < 2 * jobs + 100
