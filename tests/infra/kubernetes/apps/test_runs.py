"""What an app is told of the runs of its pipeline, and which commit stands for them."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.existing.platforms import Emulator
from slipway.infra.kubernetes.apps import runs
from slipway.infra.pipelines.apps import RUNS
from slipway.infra.program import declare
from slipway.infra.settings.loading import load
from tests.infra.pipelines.shop import SHOP, stack, written
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stack_values import changed

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
APPS = {"apps": {"runs": {"kind": "mlflow", "step": "train"}}}


def declared(folder: Path, commit: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Recording:
    def revision(root: Path, sources: Sequence[Path]) -> dict[str, Any]:
        assert root == ROOT
        assert {folder, Path("infra"), Path("workloads/runtime"), Path("stacks/Pulumi.test.yaml")} <= {*sources}
        return {"commit": commit, "changed": False}

    monkeypatch.setattr(runs, "revision", revision)
    content = changed(SHOP, {**APPS, **changes})
    values = stack(written(folder, content), {"apps": {"runs": {"pool": "cpu"}}})
    pool = {"selector": {"a": "b"}, "cpu": "8", "memory": "32Gi", "ephemeral_storage": "40Gi"}
    values["clusters"] = {"here": {"cloud": "existing", "kubeconfig": "/nowhere", "pools": {"cpu": pool}}}
    values["store"] = {"kind": "pvc"}
    emulators = [Emulator(load(values).request)]
    configuration = {f"slipway:{key}": value for key, value in values.items()}
    return record(lambda: declare(ROOT), configuration, preview=False, emulators=emulators)


def told(recording: Recording) -> Any:
    (resource,) = (resource for resource in recording.of(CONFIG_MAP) if runs.FILE in resource.inputs["data"])
    return resource


def test_an_app_is_told_commit_and_pools_without_another_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = declared(tmp_path / "shop", "one", monkeypatch)
    content = json.loads(told(first).inputs["data"][runs.FILE])
    assert content["commit"] == "one"
    assert {path.split("/")[1]: run["pool"] for path, run in content["runs"].items()}["train"] == "cpu"

    pod = first.one(STATEFUL_SET, "shop-runs").inputs["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    file = container["args"][container["args"].index("--runs") + 1]
    (mount,) = (place for place in container["volumeMounts"] if place["name"] == RUNS)
    assert file == f"{mount['mountPath']}/{runs.FILE}"
    # The kubelet brings neither such a file nor an immutable ConfigMap up to date.
    assert "subPath" not in mount
    assert not told(first).inputs.get("immutable")
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == RUNS)
    assert volume["configMap"]["name"] == told(first).inputs["metadata"]["name"]

    environment = {"steps.train.environment": {"OTHER": "1"}}
    other = declared(tmp_path / "other" / "shop", "two", monkeypatch, **environment)
    assert (told(other).name, told(other).inputs["metadata"]) == (told(first).name, told(first).inputs["metadata"])
    assert json.loads(told(other).inputs["data"][runs.FILE])["runs"].keys() != content["runs"].keys()
    assert other.one(STATEFUL_SET, "shop-runs").inputs == first.one(STATEFUL_SET, "shop-runs").inputs


def test_the_commit_is_the_last_one_that_changed_what_runs_are_declared_from(tmp_path: Path) -> None:
    root = tmp_path / "repository"

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        return subprocess.check_output(["git", "-C", str(root), *who, *words], text=True).strip()

    def commit(*files: str) -> str:
        for file in files:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(f"{(root / file).read_text() if (root / file).exists() else ''}.")
        git("add", ".")
        git("commit", "--quiet", "--message", "change")
        return git("rev-parse", "HEAD")

    subprocess.run(["git", "init", "--quiet", "-b", "main", str(root)], check=True)
    first = commit("mine/train.py", "mine/gone.py", "infra/a.py")
    sources = [Path("mine"), Path("infra"), root / "later", tmp_path / "elsewhere"]
    commit("docs/a.md")
    assert runs.revision(root, sources) == {"commit": first, "changed": False}
    (root / "docs/a.md").write_text("edited")
    assert runs.revision(root, sources) == {"commit": first, "changed": False}
    git("checkout", "--quiet", ".")
    # A branch from before another change, merged: neither commit has both.
    git("checkout", "--quiet", "-b", "branch")
    commit("infra/a.py")
    git("checkout", "--quiet", "main")
    (root / "mine/gone.py").unlink()
    removed = commit("docs/a.md")
    assert runs.revision(root, sources) == {"commit": removed, "changed": False}
    git("merge", "--quiet", "--no-edit", "branch")
    merged = git("rev-parse", "HEAD")
    commit("docs/a.md")
    assert runs.revision(root, sources) == {"commit": merged, "changed": False}
    (root / "mine/new.py").touch()
    assert runs.revision(root, sources) == {"commit": merged, "changed": True}


def test_a_folder_without_git_has_no_commit(tmp_path: Path) -> None:
    assert runs.revision(tmp_path) == {}
    assert len(runs.revision(ROOT).get("commit", "0" * 40)) == 40
