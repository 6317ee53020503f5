"""The examples of docs/transformations.md change what is declared, as a preview shows it."""

import re
from pathlib import Path
from typing import Any

import pytest

from slipway.engine.evaluation.__main__ import evaluate_stack
from slipway.engine.evaluation.encoding import Secrets
from slipway.infra import program
from tests.support.checkout import ROOT
from tests.support.project import PROJECT_FILE
from tests.support.tree import write_tree

EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "transformations.md").read_text("utf-8"), re.DOTALL)
STACK = (ROOT / "stacks" / "Pulumi.gcp-dev.yaml").read_text("utf-8").partition("  slipway:pipelines:")[0]


def declared(folder: Path, main: str) -> dict[str, Any]:
    """The properties of each resource by type and name."""
    files = {
        "Pulumi.yaml": PROJECT_FILE,
        "stacks/Pulumi.here.yaml": f"{STACK}  slipway:kueue: {{}}\n",
        "__main__.py": main,
    }
    document = evaluate_stack("here", write_tree(folder, files), Secrets(b"k"), lambda _: None)
    return {f"{entry['type']} {entry['name']}": entry["properties"] for entry in document["resources"]}


CHANGES: list[tuple[str, tuple[str, ...], Any]] = [
    ("gcp:storage/bucket:Bucket store", ("encryption", "defaultKmsKeyName"), "/cryptoKeys/store"),
    ("gcp:container/nodePool:NodePool dev-train", ("nodeConfig", "diskType"), "pd-ssd"),
    ("gcp:container/nodePool:NodePool dev-train", ("nodeConfig", "resourceLabels", "cost-center"), "ml-42"),
    ("kubernetes:helm.sh/v3:Release dev-kueue-release", ("chart",), "registry.example.com/charts/kueue"),
    ("gcp:container/nodePool:NodePool dev-train", ("maintenancePolicies",), "[{'enabled': True}]}]"),
]


@pytest.mark.parametrize(("example", "change"), list(zip(EXAMPLES, CHANGES, strict=True)))
def test_an_example_of_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str, change: tuple[str, tuple[str, ...], Any]
) -> None:
    monkeypatch.setattr(program, "PROJECT", tmp_path)
    resource, path, value = change
    properties = declared(tmp_path, f"{example}\nfrom slipway import run\n\nrun()\n")[resource]
    for key in path:
        properties = properties[key]
    assert str(properties).endswith(value)
