"""A rehearsal declares what stands beside `slipway.run`, and runs none of it."""

import textwrap
from pathlib import Path

import pytest

from slipway.engine.monitor import EvaluationError
from slipway.engine.project import SlipwayProject
from slipway.infra import program
from slipway.infra.schema.problems import SettingsError
from slipway.rehearse.beside import is_beside
from slipway.rehearse.output.outcome import Options, Outcome
from slipway.rehearse.session import Session, configure
from slipway.rehearse.state import Phase
from tests.support.project import PROJECT_FILE, STACK
from tests.support.rehearsing import phases, recording_console
from tests.support.tree import write_tree

RUN = """
import pulumi
import pulumi_kubernetes as k8s

from slipway import run

declared = run()
here = declared.clusters["here"]
"""

BESIDE = f"""{RUN}
import pulumi_aws as aws

image = aws.ec2.get_ami(owners=["amazon"])
opts = pulumi.ResourceOptions(provider=here.provider)
labels = {{"app": "own"}}


def template(**more):
    pod = {{"containers": [{{"name": "own", "image": "own", "command": ["touch", "{{TOUCHED}}"]}}], **more}}
    return {{"metadata": {{"labels": labels}}, "spec": pod}}


migrated = k8s.batch.v1.Job("migrate", spec={{"template": template(restartPolicy="Never")}}, opts=opts)
k8s.apps.v1.StatefulSet(
    "database",
    metadata={{"name": "database", "namespace": "there-already"}},
    spec={{"serviceName": "database", "selector": {{"matchLabels": labels}}, "template": template()}},
    opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[migrated])),
)
pulumi.export("image", image.id)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(program, "PROJECT", tmp_path)
    stack = STACK.partition("  slipway:pipelines")[0]
    files = {"Pulumi.yaml": PROJECT_FILE.replace("slipway", "acme", 1), "stacks/Pulumi.here.yaml": stack}
    return write_tree(tmp_path, files)


def rehearsed(root: Path, main: str) -> tuple[Outcome, str]:
    write_tree(root, {"__main__.py": textwrap.dedent(main)})
    console, options = recording_console(), Options("here", root, root / "build")
    project = SlipwayProject.read(root)
    outcome = Session(project.run, configure("here", root), options, console, is_beside=is_beside).run()
    return outcome, console.export_text()


def test_pods_beside_it_are_declared_and_not_run(project: Path) -> None:
    touched = project / "touched"
    outcome, said = rehearsed(project, BESIDE.replace("{TOUCHED}", str(touched)))
    assert outcome.exit_code == 0
    assert phases(outcome)["migrate"] is Phase.SKIPPED
    assert not touched.exists()
    assert outcome.services == []
    assert "StatefulSet database" in said
    assert "aws:ec2/getAmi" in said


def test_an_error_beside_it_says_its_line_and_its_words(project: Path) -> None:
    with pytest.raises(EvaluationError, match=r"__main__\.py:9: LookupError: no such subnet"):
        rehearsed(project, f"{RUN}raise LookupError('no such subnet')\n")
    later = "here.namespace.apply(lambda name: int(name))"
    with pytest.raises(EvaluationError, match=r"__main__\.py:9: ValueError: .*'"):
        rehearsed(project, f"{RUN}pulumi.export('number', {later})\n")
    with pytest.raises(SettingsError) as caught:
        rehearsed(project, f"{RUN}pulumi.Config().require('owner')\n")
    assert [problem.key for problem in caught.value.problems] == ["acme:owner"]
