"""Scripts: what bash makes of references in them, and what is refused."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from slipway.infra.pipelines.scripts import LONGEST, Run, command_of, is_script
from tests.infra.pipelines.file.test_wrong import problems, step
from tests.infra.pipelines.file_problems import check

EVIL = "two  words 'it' \"q\" $HOME `date` $(date) * \\ ; false"
"""A value that a shell would take apart."""


def run(script: str, values: Mapping[str, str], code: int = 0) -> subprocess.CompletedProcess[str]:
    words = [word.format_map(values) for word in command_of(script)]
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/home"}
    ended = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == code, ended.stderr
    return ended


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("printf '<%s>' {a}", f"<{EVIL}>"),
        ("printf '<%s>' pre{a}post", f"<pre{EVIL}post>"),
        ("printf '<%s>' \"{a}/x\"", f"<{EVIL}/x>"),
        ("printf '<%s>' '{a} {b}'", f"<{EVIL} B>"),
        ('echo "$(printf \'<%s>\' {a} "{b}")"', f"<{EVIL}><B>\n"),
        ("# it's a comment: {a}\nprintf '<%s>' {a} # don't", f"<{EVIL}>"),
        ("f() { printf '<%s>' {a} $1; }; f 1", f"<{EVIL}><1>"),
        ("cat <<END\nit's \"{a}\"\nEND\nprintf '<%s>' {a}", f'it\'s "{EVIL}"\n<{EVIL}>'),
        ("cat <<-END\n\t{a}'\n\tEND\ncat <<<{a}", f"{EVIL}'\n{EVIL}\n"),
        ("echo $(( (1 << 3) + {b#} )) {b}".replace("{b#}", "2"), "10 B\n"),
        ("printf '<%s>' $'it\\'s' {a}", f"<it's><{EVIL}>"),
        ("echo ${HOME} {{a}} {} {x,y} ${#HOME} {b}", "/home {a} {} x y 5 B\n"),
        ("set -- 1 2; echo $# {b}", "2 B\n"),
    ],
)
def test_a_value_stays_one_word_and_is_never_run(script: str, output: str) -> None:
    assert run(script, {"a": EVIL, "b": "B"}).stdout == output


def test_the_first_failure_ends_a_script_and_names_its_line() -> None:
    ended = run("echo one\n(exit 7) | true\necho never", {}, code=7)
    assert ended.stdout == "one\n"
    assert "line 2 " in ended.stderr
    run("echo $unset", {}, code=1)
    assert run("false || echo two && echo three", {}).stdout == "two\nthree\n"


def test_what_bash_could_not_be_given_is_refused() -> None:
    with pytest.raises(PydanticCustomError, match="here-document"):
        command_of("cat <<'END'\n{a}\nEND")
    with pytest.raises(ValidationError, match="longer"):
        TypeAdapter[object](Run).validate_python("x" * (LONGEST + 1))
    assert not is_script(["bash", "-c", "true"])


def test_a_script_in_a_file_and_what_can_be_wrong_with_it(tmp_path: Path) -> None:
    script = "python train.py {prepare} {trees} && cp model {output}/model"
    assert problems(tmp_path / "a", step(run=script)) == {}
    wrong = step(run="python train.py {prepair} {trees}", results={})
    check(problems(tmp_path / "b", wrong), "", {"steps.train.run": ["`prepair`", "{prepare}"]})
    check(problems(tmp_path / "c", step(run="python train.py")), "", {"steps.train.run": ["{output}"]})
    check(problems(tmp_path / "d", step(run=" \n")), "steps.train.run", {})
    varied = step(run="cat {prepare} > {output}/x")
    varied["steps"]["prepare"] = {"run": "echo {trees} > {output}/x", "matrix": {"trees": [1, 2]}}
    check(problems(tmp_path / "e", varied), "", {"steps.train.run": ["matrix", "`best`"]})
