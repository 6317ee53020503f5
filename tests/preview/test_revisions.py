"""Two trees are evaluated beside one another, and whatever becomes of a worker, its caller goes on."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import indent

import pytest

from slipway.infra.exits import Exit
from slipway.infra.review.stack import UNKNOWN, Secret, Stack
from slipway.preview import cli
from slipway.preview.revisions import Checkout, Evaluations, Limits, evaluate_trees
from tests.preview.tree import ROOT, make_tree
from tests.support.tree import write_tree

THINGS = """
thing("a", metadata={{"name": "a"}}, stringData=pulumi.Output.secret({{"x": "{secret}"}}))
thing("b", data={{"uid": thing("c").id}})
"""

DYING = {"exiting": ("os._exit(3)", "with exit code 3"), "killed": ("os.kill(os.getpid(), 9)", "by SIGKILL")}
"""Stacks that end their process at the head, with how they do it and what is said of it."""


def body(tree: str) -> str:
    """What the stacks declare in one of the trees."""
    # As a kubeconfig does: its server's address is the cloud's to give, and how to sign in is the program's.
    signing = f'thing("a", config=pulumi.Output.secret(thing("c").id.apply(lambda it: f"{{it}} signs in {tree}")))'
    last = 'os.write(2, b"first\\nlast words\\n")'
    cases = {
        "other": THINGS.format(secret=9 * tree),
        "signing": signing,
        **{name: f"{last}; {end}" if tree == "head" else 'thing("a")' for name, (end, _) in DYING.items()},
        "_": THINGS.format(secret="hidden"),
    }
    written = (
        f"    case {name if name == '_' else repr(name)}:\n{indent(each.strip(), 8 * ' ')}\n"
        for name, each in cases.items()
    )
    return f"import os\nmatch pulumi.get_stack():\n{''.join(written)}"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Evaluations:
    """Both trees; a worker evaluates those stacks of one that are left when it dies."""
    folder = tmp_path_factory.mktemp("trees")
    both = ["same", "other", "signing", *DYING]
    head = make_tree(folder / "head", body("head"), {name: {} for name in (*both, "new")})
    base = make_tree(folder / "base", body("base"), {name: {} for name in (*both, "gone")})
    return evaluate_trees(head, base)


def sides(found: Evaluations, name: str) -> tuple[Stack, Stack]:
    """A stack now and before."""
    now, before = found.head[name].stack, found.base[name].stack
    assert now is not None
    assert before is not None
    return now, before


@pytest.mark.slow
def test_two_trees_with_the_same_secret_are_equal(found: Evaluations) -> None:
    assert set(found.head) - set(found.base) == {"new"}
    assert set(found.base) - set(found.head) == {"gone"}
    now, before = sides(found, "same")
    assert now.resources == before.resources
    assert [each.name for each in now.resources.values()] == ["a", "c", "b"]
    secret, _, unknown = (each.properties for each in now.resources.values())
    assert isinstance(secret["stringData"], Secret)
    assert unknown["data"] == {"uid": UNKNOWN}


def test_a_changed_secret_is_a_difference(found: Evaluations) -> None:
    now, before = sides(found, "other")
    assert {urn for urn, each in now.resources.items() if each != before.resources[urn]} == {
        "urn:pulumi:other::slipway::kubernetes:core/v1:ConfigMap::a"
    }


def test_partly_unknown_secrets_are_compared_by_their_known_part(found: Evaluations) -> None:
    configs: list[Secret] = []
    for each in sides(found, "signing"):
        configs += [resource.properties["config"] for resource in each.resources.values() if resource.name == "a"]
    assert [each.partial for each in configs] == [True, True]
    assert configs[0] != configs[1]


@pytest.mark.parametrize("name", DYING)
def test_a_worker_that_dies_fails_its_own_stacks_only(found: Evaluations, name: str) -> None:
    failure = found.head[name].failure
    assert failure is not None
    assert failure.message == f"its evaluation ended {DYING[name][1]}\nfirst\nlast words"
    assert {each for each in found.head if found.head[each].failure} == {*DYING}
    assert not any(each.failure for each in found.base.values())


@pytest.mark.slow
def test_only_requested_stacks_are_evaluated_and_a_missing_one_fails(tmp_path: Path) -> None:
    head = make_tree(tmp_path / "head", "pass", {"a": {}, "b": {}})
    base = make_tree(tmp_path / "base", "pass", {"gone": {}, "b": {}})
    found = evaluate_trees(head, base, ["gone", "b", "nowhere"])
    assert (list(found.head), list(found.base)) == (["b", "nowhere"], ["b", "gone"])
    assert found.head["b"].failure is None
    failure = found.head["nowhere"].failure
    assert failure is not None
    assert "there is no stack 'nowhere'" in failure.message


CALLING = """
import sys
from pathlib import Path
from slipway.preview.revisions import evaluate_trees
evaluate_trees(Path(sys.argv[1]), None)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_end_with_their_caller(number: signal.Signals, tmp_path: Path) -> None:
    body = f"""
import os, pathlib, time
pathlib.Path({str(tmp_path / "part")!r}).write_text(str(os.getpid()))
os.rename({str(tmp_path / "part")!r}, {str(tmp_path / "pid")!r})
time.sleep(60)
"""
    tree = make_tree(tmp_path / "tree", body)
    caller = subprocess.Popen([sys.executable, "-c", CALLING, str(tree)], cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    caller.send_signal(number)
    assert caller.wait(timeout=30) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


GUILTY = """
import os, time
match pulumi.get_stack():
    case "b-busy":
        while True: pass
    case "d-dead":
        os._exit(0)
    case "f-fat":
        [bytearray(1 << 20) for _ in range(1 << 20)]
    case _:
        thing("a")
"""


@pytest.mark.slow
def test_a_stack_that_exceeds_a_limit_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # All in one process, which each of the bad ones ends.
    monkeypatch.setattr("slipway.preview.revisions._cores", lambda: 1)
    names = ["a", "b-busy", "c", "d-dead", "e", "f-fat", "g"]
    tree = make_tree(tmp_path / "tree", GUILTY, {name: {} for name in names})
    evaluations = evaluate_trees(tree, None, limits=Limits(cpu=4, memory=1 << 30))
    assert evaluations.base == {}
    found = evaluations.head
    assert list(found) == names
    assert {name: each.failure.message for name, each in found.items() if each.failure} == {
        "b-busy": "its evaluation was ended, for it takes more than 4 s of CPU time",
        "d-dead": "its evaluation ended with exit code 0",
        "f-fat": "its evaluation was ended, for it takes more than 1 GiB of memory",
    }
    for name in ("a", "c", "e", "g"):
        stack = found[name].stack
        assert stack is not None
        assert [each.name for each in stack.resources.values()] == ["a"]


@pytest.mark.slow
def test_a_stack_that_hangs_is_ended(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", "import time; time.sleep(600)")
    failure = evaluate_trees(tree, None, limits=Limits(time=2)).head["dev"].failure
    assert failure is not None
    assert failure.message == "its evaluation was ended, for it takes more than 2 s"


@pytest.mark.slow
def test_a_base_of_a_later_format_is_refused_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write_tree(
        tmp_path / "base",
        {
            "Pulumi.yaml": "name: slipway\nruntime: python\nstackConfigDir: stacks\n",
            "stacks/Pulumi.dev.yaml": "config: {}",
            "slipway/engine/evaluation/__main__.py": """print('{"format": 2, "declared": "in another way"}')""",
        },
    )
    checkout = Checkout(base, "main", "a" * 40, "a" * 40)
    monkeypatch.setattr(cli, "PROJECT", make_tree(tmp_path / "head", 'thing("a")'))
    monkeypatch.setattr(cli, "check_out", lambda *_: contextlib.nullcontext(checkout))
    assert cli.main([], "main", "error", cli.Files()) is Exit.REFUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "error: the base prints what its stacks declare in format 2, and this revision reads format 1: "
        "merge the base into this branch, or rebase onto it\n"
    )
