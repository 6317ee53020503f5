"""The starting notebook, run as a person runs it: on a real training, with a server that has the real model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.pipelines.app_kinds.notebook import NotebookSettings, declaration
from slipway.workloads.apps.notebook import serve
from slipway.workloads.apps.notebook.cells import notebook, starting_notebook
from slipway.workloads.apps.notebook.served import Model, ModelError
from tests.workloads.apps.notebook.servers import variables
from tests.workloads.json_server import Server, serving
from tests.workloads.steps import ROOT
from workloads.mnist.pipeline import Mnist, steps

pytestmark = pytest.mark.slow

EXAMPLES = "{prepare}/images/*.png"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, data: Path, training: tuple[Path, str]) -> Path:
    folder = tmp_path_factory.mktemp("store")
    shutil.copytree(data, folder / "mnist" / "prepare" / "8a03757921")
    shutil.copytree(training[0], folder / "mnist" / "train" / "c8f5021cbf")
    return folder


@pytest.fixture(scope="module")
def server(training: tuple[Path, str]) -> Iterator[Server]:
    """Answers with the trained model as TensorFlow Serving's REST API does. Version 4 has the label `stable`."""
    import numpy as np
    import tensorflow as tf

    model = tf.saved_model.load(str(training[0] / "saved_model"))
    signature = model.signatures["serving_default"]
    ((key, spec),) = signature.structured_input_signature[1].items()
    dimensions = [{"size": str(-1 if size is None else size)} for size in spec.shape]
    of_inputs = {key: {"dtype": "DT_UINT8", "tensor_shape": {"dim": dimensions, "unknown_rank": False}}}
    states = [{"version": version, "state": "AVAILABLE"} for version in ("5", "4")]

    def answer(method: str, path: str, content: Any) -> tuple[int, object]:
        if path in {"/v1/models/mnist", "/v1/models/mnist/labels/stable"}:
            return 200, {"model_version_status": states}
        if path == "/v1/models/mnist/labels/stable/metadata":
            return 200, {"model_spec": {"name": "mnist", "version": "4"}, "metadata": {}}
        if path == "/v1/models/mnist/versions/4/metadata":
            signatures = {"serving_default": {"inputs": of_inputs}}
            return 200, {"metadata": {"signature_def": {"signature_def": signatures}}}
        if path == "/v1/models/mnist/versions/4:predict":
            images = np.asarray(content["instances"], dtype=np.uint8)
            ((_, outputs),) = signature(**{key: tf.constant(images)}).items()
            return 200, {"predictions": outputs.numpy().tolist()}
        return 404, {"error": f"Servable not found: {path}"}

    with serving(answer) as stub:
        yield stub


def executed(store: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, **more: str) -> list[Mapping[str, Any]]:
    """The cells of the starting notebook after it was run."""
    settings = Mnist.model_validate({"steps": {name: {"pool": "cpu"} for name in ("prepare", "train", "predict")}})
    declared = declaration("notebook", NotebookSettings(pool="cpu"), steps(settings), serving="serving")
    of_steps = json.loads(declared.environment["SLIPWAY_STEPS"].format_map({}))
    for name, value in {**variables(store, "mnist", of_steps), "PYTHONPATH": str(ROOT), **more}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLIPWAY_NOTEBOOK_FOLDER", str(kept))
    # Their imports take seconds, which each worker would wait for.
    import nbformat
    from nbclient import NotebookClient

    start = nbformat.reads(starting_notebook(), as_version=4)
    nbformat.validate(start)
    NotebookClient(
        start, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(kept)}}
    ).execute()
    return [cell for cell in start["cells"] if cell["cell_type"] == "code"]


def said(cell: Mapping[str, Any]) -> str:
    parts = [output.get("text") or output.get("data", {}).get("text/markdown", "") for output in cell["outputs"]]
    return "\n".join(parts)


def pictures(cell: Mapping[str, Any]) -> int:
    return sum("image/png" in output.get("data", {}) for output in cell["outputs"])


def test_it_shows_the_run_and_asks_the_model(
    store: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = executed(
        *(store, tmp_path, monkeypatch),
        SERVING_ADDRESS=server.address,
        SLIPWAY_MODEL="mnist",
        SLIPWAY_EXAMPLES=EXAMPLES,
    )
    overview, results, prediction, by_hand = cells
    assert "| train | c8f5021cbf |" in said(overview)
    assert "| predict | none yet |" in said(overview)
    assert "train: Test accuracy 0.9" in said(results)
    assert pictures(results) == 1
    assert "version 4 takes" in said(prediction)
    assert "3 examples by version 4" in said(prediction)
    # Each example and its bars.
    assert pictures(prediction) == 6
    assert f"--data {store}/mnist/prepare/8a03757921 --output {tmp_path}/by-hand/train" in said(by_hand)


def test_the_model_reads_the_digits_that_it_is_shown(store: Path, server: Server) -> None:
    from slipway.workloads.apps.notebook import drawing, examples

    model = Model(server.address, "mnist")
    ((dtype, shape),) = model.inputs(4).values()
    files = sorted((store / "mnist/prepare/8a03757921/images").glob("*.png"))
    truth = json.loads((files[0].parent / "labels.json").read_text())
    answer = model.predict([examples.instance(file, dtype, shape) for file in files])
    assert answer.version == 4
    shares = [drawing.shares(output) for output in answer.outputs]
    assert all(abs(sum(share) - 1) < 1e-6 for share in shares)
    read = [share.index(max(share)) for share in shares]
    right = sum(truth[file.name] == digit for file, digit in zip(files, read, strict=True))
    assert right >= 8, read


def test_a_notebook_that_was_kept_from_before_imports_by_the_earlier_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat
    from nbclient import NotebookClient

    (tmp_path / serve.STARTUP).write_text(serve.EARLIER, encoding="utf-8")
    for name in ("PYTHONPATH", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, serve.surroundings(tmp_path, tmp_path, tmp_path)[name])
    cell = nbformat.v4.new_code_cell("from workloads.notebook.runs import Runs\nprint(Runs.__name__)")
    kept = nbformat.v4.new_notebook(cells=[cell])
    NotebookClient(kept, timeout=300, kernel_name="python3").execute()
    assert said(kept["cells"][0]) == "Runs\n"


def test_it_says_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERVING_ADDRESS", raising=False)
    (tmp_path / "store").mkdir()
    overview, results, prediction, by_hand = executed(tmp_path / "store", tmp_path, monkeypatch)
    assert said(overview).count("none yet") == 3
    assert said(results) == ""
    assert "serves no model" in said(prediction)
    assert "train: " in said(by_hand)
    assert "has no whole result: none yet" in said(by_hand)


def test_a_server_that_is_away_is_no_error_of_the_notebook(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = executed(store, tmp_path, monkeypatch, SERVING_ADDRESS="127.0.0.1:1", SLIPWAY_MODEL="mnist")
    assert "127.0.0.1:1/v1/models/mnist" in said(cells[2])


def test_an_error_has_the_servers_own_words(server: Server) -> None:
    with pytest.raises(ModelError, match="404: Servable not found"):
        Model(server.address, "other").versions()


def test_a_file_in_cells_becomes_a_notebook() -> None:
    import nbformat

    source = '"""Not part of it."""\n\n# %% [markdown]\n# # Title\n#\n# Text\n\n# %%\nx = 1\n\n\nprint(x)\n'
    cells = nbformat.reads(notebook(source), as_version=4)
    nbformat.validate(cells)
    assert [(cell["cell_type"], cell["source"]) for cell in cells["cells"]] == [
        ("markdown", "# Title\n\nText"),
        ("code", "x = 1\n\n\nprint(x)"),
    ]
