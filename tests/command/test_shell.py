"""`slipway shell` and `slipway open`, with a kubectl that says what it was told."""

import os
import sys
from pathlib import Path

import pytest
import yaml

from slipway.command import shell
from slipway.command.clusters import Clusters, Place, kubectl
from slipway.command.watch.cli import WatchError
from slipway.command.watch.plan import Expected, Plan, evaluate
from slipway.command.watch.session import Session
from slipway.infra.exits import Exit
from slipway.infra.places import PROJECT
from tests.command.watch.cluster import NOW, Cluster, job, pod, running, serving, unschedulable
from tests.support.servers.api_server import kubeconfig

KUBECTL = """#!{python}
import pathlib, sys
pathlib.Path({told!r}).write_text("\\n".join(sys.argv[1:]))
print("Forwarding from 127.0.0.1:9000 -> 8080\\nHandling connection for 9000")
sys.exit(7)
"""
TRAIN = Expected("mnist-train", "mnist-train-1", "mnist", "train", "dev", "slipway", pods=2)


@pytest.fixture(name="told")
def a_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program, told = tmp_path / "bin/kubectl", tmp_path / "told"
    program.parent.mkdir()
    program.write_text(KUBECTL.format(python=sys.executable, told=str(told)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return told


def enter(session: Session, monkeypatch: pytest.MonkeyPatch, *words: str, index: int = 0) -> int:
    monkeypatch.setattr(shell, "open_session", lambda *_: session)
    return shell.enter("dev", "train", words, None, "", index=index)


def test_a_shell_is_opened_in_the_container_of_a_pod_that_runs(
    told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, made = tmp_path / "kubeconfig", job("mnist-train-1", pods=2)
    with serving(Cluster(), file) as cluster:
        place = Place("dev", str(file))
        plan = Plan("dev", [TRAIN], [place], {"dev": "slipway"})
        session = Session(plan, Clusters("dev", {"dev": place}), clock=lambda: NOW)
        waiting = pod(made, "b", unschedulable("0/1 nodes are available: 1 Insufficient cpu."), index=1)
        cluster.put(made, pod(made, "a", phase="Running", node="n", state=running(), index=0), waiting)
        assert enter(session, monkeypatch, "nvidia-smi", "-L") == 7
        words = told.read_text().splitlines()
        assert words[:4] == ["--kubeconfig", str(file), "--namespace", "slipway"]
        assert words[4:] == ["exec", "-i", "mnist-train-1-a", "--container", "train", "--", "nvidia-smi", "-L"]
        enter(session, monkeypatch)
        assert told.read_text().splitlines()[-3:] == [*shell.SHELL]
        told.unlink()
        assert enter(session, monkeypatch, index=1) == Exit.REFUSED
        assert not told.exists()
        assert "enough free cpu" in capsys.readouterr().err
        monkeypatch.setenv("PATH", str(tmp_path))
        assert enter(session, monkeypatch) == Exit.REFUSED
        assert "kubectl is not on PATH" in capsys.readouterr().err


def test_a_kubeconfig_of_the_state_is_a_file_of_this_user_alone(tmp_path: Path) -> None:
    text = yaml.safe_dump(kubeconfig(1))
    *_, name, context, value = kubectl(text, "here", tmp_path)
    assert (Path(name).read_text(), context, value) == (text, "--context", "here")
    assert Path(name).stat().st_mode & 0o077 == 0
    assert kubectl("", None, tmp_path) == ["kubectl"]


@pytest.mark.slow
def test_an_app_is_reached_by_the_port_of_its_service(
    told: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = shell.pages(evaluate("gcp-serving", PROJECT))
    assert shell.choose_page("page", "gcp-serving", known).name == "mnist.page"
    with pytest.raises(WatchError, match=r"mnist\.page"):
        shell.choose_page("nothing", "gcp-serving", known)
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig(1)))
    assert shell.open_app("gcp-serving", "page", 9000, file, "") == 7
    words = told.read_text().splitlines()
    assert words[-3:] == ["port-forward", "service/mnist-page", "9000:8080"]
    assert "http://localhost:9000/" in capsys.readouterr().out
