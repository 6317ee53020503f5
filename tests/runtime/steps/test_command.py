"""The runner of programs that know nothing of Slipway, run as a pod runs it."""

from __future__ import annotations

import ast
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.infra.pipelines.scripts import command_of
from slipway.runtime.exits import BAD_INPUT, INTERRUPTED, USAGE
from slipway.runtime.masking import Masker
from slipway.runtime.steps import notice, outputs
from slipway.runtime.steps.outputs import NO_RESULT, NoResultError
from slipway.runtime.store import check, publish, staging
from tests.support.steps import ROOT, command, environment, errors, only_error, run, start

RUNNER = "slipway.runtime.steps.command"

TRAIN = """
import json, sys
output, accuracy = sys.argv[1:3]
with open("runs", "a") as file:
    file.write("run ")
with open(f"{output}/metrics.json", "w") as file:
    json.dump({"test": {"accuracy": json.loads(accuracy)}, "worst": []}, file)
"""

CHECKPOINTS = """
import os, pathlib, signal, sys, time
output, epochs, told = pathlib.Path(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])

def stop(*_):
    told.write_text("SIGTERM")
    sys.exit(int(sys.argv[4]))

signal.signal(signal.SIGTERM, stop)
checkpoint = output / "checkpoint"
done = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("starts after epoch", done, flush=True)
for epoch in range(done, epochs):
    temporary = output / "checkpoint.new"
    temporary.write_text(str(epoch + 1))
    temporary.replace(checkpoint)
    print("epoch", epoch + 1, "done", flush=True)
    time.sleep(60 if epoch == 1 and not done else 0)
(output / "model").write_text("trained")
"""


def step(tmp_path: Path, script: str, *words: object, flags: tuple[object, ...] = (), code: int = 0) -> str:
    """Run a script with `tmp_path / "out"` as its output and its first argument."""
    (tmp_path / "program.py").write_text(script)
    return run(
        RUNNER, "--output", tmp_path / "out", "--step", "churn.train", "--code", tmp_path, *flags,
        "--", sys.executable, "program.py", tmp_path / "out", *words, code=code,
    )  # fmt: skip


def published(folder: Path, files: dict[str, str]) -> Path:
    with staging() as staged:
        for name, content in files.items():
            (staged / name).parent.mkdir(parents=True, exist_ok=True)
            (staged / name).write_text(content)
        publish(staged, folder, step="test", inputs={}, settings={}, summary={})
    return folder


def waiting_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_a_program_leaves_is_a_result(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys; output = pathlib.Path(sys.argv[1]); (output / 'a').mkdir();"
        "(output / 'a' / 'b.txt').write_text('b'); (output / '.x.slipway-partial').touch();"
        "assert 'SLIPWAY_RECORD' not in os.environ"
    )
    output = step(tmp_path, script, flags=("--result", "b=a/b.txt", "--result", "folder=a"))

    assert output.splitlines()[-1] == f"Published 1 files: {tmp_path / 'out'}"
    manifest = check(tmp_path / "out")
    assert list(manifest.files) == ["a/b.txt"]
    assert manifest.step == "churn.train"
    assert manifest.settings == {"command": [sys.executable, "program.py", "{output}"]}
    assert step(tmp_path, script).startswith("Nothing to do: ")


def test_a_result_is_the_same_work_where_the_store_is_mounted_elsewhere(tmp_path: Path) -> None:
    published(tmp_path / "data", {"x": "x"})
    step(tmp_path, TRAIN, 0.5, tmp_path / "data", flags=("--input", f"data={tmp_path / 'data'}"))

    (tmp_path / "moved").mkdir()
    (tmp_path / "data").rename(tmp_path / "moved" / "data")
    (tmp_path / "out").rename(tmp_path / "moved" / "out")

    assert run(
        RUNNER, "--output", tmp_path / "moved" / "out", "--step", "churn.train",
        "--code", tmp_path, "--input", f"data={tmp_path / 'moved' / 'data'}",
        "--", sys.executable, "program.py", tmp_path / "moved" / "out", 0.5, tmp_path / "moved" / "data",
    ).startswith("Nothing to do: ")  # fmt: skip


def test_only_whole_paths_are_taken_for_directories(tmp_path: Path) -> None:
    words = ("--layout=out", "out/model", "layout", "outer", "x=out:out")
    subprocess.run(
        [sys.executable, "-m", "slipway.runtime.steps.command", "--output", "out", "--", "true", *words],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(ROOT)),
        check=True,
    )
    assert check(tmp_path / "out").settings["command"][1:] == [
        "--layout={output}", "{output}/model", "layout", "outer", "x={output}:{output}"
    ]  # fmt: skip


def test_a_program_that_writes_nothing_has_an_empty_result(tmp_path: Path) -> None:
    assert "warning: " in step(tmp_path, "")
    assert check(tmp_path / "out").files == {}


def test_a_step_that_ended_well_leaves_its_record(tmp_path: Path) -> None:
    record = str(tmp_path / "record")
    run(RUNNER, "--output", tmp_path / "out", "--", "true", SLIPWAY_RECORD=record)
    assert (tmp_path / "record").exists()


def test_all_results_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    results = ("accuracy=metrics.json#/test/acuracy", "worst=metrics.json#/worst/0", "curve=curve.png")
    flags = [flag for result in results for flag in ("--result", result)]

    error = only_error(step(tmp_path, TRAIN, 0.5, flags=tuple(flags), code=NO_RESULT))

    assert error.startswith("error: churn.train: the program ended well, but 3 of its 3 results are not in ")
    assert "accuracy: metrics.json has no /test/acuracy; /test has accuracy" in error
    assert "worst: metrics.json has no /worst/0; /worst is a list of 0" in error
    assert "curve: there is no file curve.png. It wrote metrics.json" in error
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_training_is_not_repeated_for_a_result_that_was_misspelt(tmp_path: Path) -> None:
    wrong = ("--result", "accuracy=metrics.json#/test/acuracy")
    step(tmp_path, TRAIN, 0.5, flags=wrong, code=NO_RESULT)

    output = step(tmp_path, TRAIN, 0.5, flags=("--result", "accuracy=metrics.json#/test/accuracy"))

    assert "ended well before, and is not run again" in output
    assert (tmp_path / "runs").read_text() == "run "
    assert list(check(tmp_path / "out").files) == ["metrics.json"]
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name != "manifest.json"] == ["metrics.json"]


def test_a_program_runs_again_where_the_same_result_is_still_missing(tmp_path: Path) -> None:
    """It may have failed to write it for a reason that is gone."""
    wrong = ("--result", "curve=curve.png")
    step(tmp_path, TRAIN, 0.5, flags=wrong, code=NO_RESULT)
    step(tmp_path, TRAIN, 0.5, flags=wrong, code=NO_RESULT)

    assert (tmp_path / "runs").read_text() == "run run "


def test_a_program_may_not_write_the_manifest_itself(tmp_path: Path) -> None:
    output = step(tmp_path, "import sys; open(sys.argv[1] + '/manifest.json', 'w').write('{}')", code=NO_RESULT)
    assert "let it write another name" in only_error(output)
    assert (tmp_path / "out" / "manifest.json").read_text() == "{}"


def test_a_name_that_is_not_utf_8_is_refused_by_name(tmp_path: Path) -> None:
    script = "import os, sys; open(os.path.join(os.fsencode(sys.argv[1]), b'caf\\xe9'), 'w')"
    output = step(tmp_path, script, code=NO_RESULT)
    assert "caf\\udce9" in only_error(output)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_links_out_of_the_directory_and_pipes_are_left_out_by_name(tmp_path: Path) -> None:
    script = (
        "import os, sys; os.chdir(sys.argv[1]); open('model', 'w').write('m'); os.symlink('model', 'latest');"
        "os.symlink('/etc/hostname', 'host'); os.symlink('gone', 'dangling'); os.mkfifo('pipe'); os.mkdir('d');"
        "open('d/f', 'w').close(); os.symlink('d', 'folder')"
    )
    output = step(tmp_path, script)

    assert sorted(check(tmp_path / "out").files) == ["d/f", "latest", "model"]
    warnings = [line for line in output.splitlines() if line.startswith("warning: left out of the result: ")]
    assert [line.split(": ")[2].split()[0] for line in warnings] == ["dangling", "folder", "host", "pipe"]


def test_files_that_still_change_are_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_PAUSES", (0.05, 0.05))
    (tmp_path / "steady").write_text("s")
    # To read it takes longer than the next line takes to come.
    (tmp_path / "log").write_bytes(bytes(30_000_000))
    script = "import time\nwhile True:\n  open('log', 'a').write('x')\n  time.sleep(0.001)"
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path) as process:
        waiting_for(lambda: (tmp_path / "log").stat().st_size > 30_000_000)
        try:
            with pytest.raises(NoResultError, match="still change after the program ended: log; does it leave"):
                outputs.collect(tmp_path)
        finally:
            process.kill()
    assert sorted(outputs.collect(tmp_path)) == ["log", "steady"]


def variants(tmp_path: Path, **accuracies: str) -> tuple[str, ...]:
    """Results with these accuracies, as JSON, and the flags that choose the best."""
    flags: list[str] = []
    for name, accuracy in accuracies.items():
        folder = published(tmp_path / name, {"metrics.json": f'{{"accuracy": {accuracy}}}', "model": "x"})
        flags += ["--input", f"{name}={folder}"]
    return (*flags, "--best", f"train=max:metrics.json#/accuracy:{','.join(accuracies)}")


def test_the_best_of_several_is_taken(tmp_path: Path) -> None:
    flags = variants(tmp_path, a="0.5", b="0.75", c="0.75", d="-1")
    output = run(
        RUNNER, "--output", tmp_path / "out", *flags,
        "--", "sh", "-c", "echo {best:train} $IN", IN="{best:train}/model",
    )  # fmt: skip

    assert output.startswith(
        "The best of train is b: metrics.json#/accuracy is 0.75, the largest of 4 (a 0.5, c 0.75, d -1)\n"
    )
    assert f"{tmp_path / 'b'} {tmp_path / 'b' / 'model'}\n" in output
    manifest = check(tmp_path / "out")
    assert manifest.summary["best"] == {
        "train": {"is": "b", "by": "metrics.json#/accuracy", "of": "max", "value": 0.75}
    }
    assert sorted(manifest.inputs) == ["a", "b", "c", "d"]


def test_a_number_that_is_none_is_refused_by_the_name_of_its_variant(tmp_path: Path) -> None:
    flags = variants(tmp_path, a="0.5", b="NaN", c='"high"', d="true", e="null", f="1e999")
    output = run(RUNNER, "--output", tmp_path / "out", *flags, "--", "echo", "ran", code=BAD_INPUT)

    error = only_error(output)
    assert 'b: nan is not a finite number; c: "high" is not a number; d: true is not a number; e: null is' in error
    assert "f: inf is not a finite number" in error
    assert "a: " not in error
    assert "ran" not in output


def test_only_what_is_used_of_a_choice_has_to_be_whole(tmp_path: Path) -> None:
    """The models of the others may be large, and nobody reads them."""
    flags = variants(tmp_path, a="0.5", b="0.75")
    (tmp_path / "a" / "model").write_text("y")
    run(RUNNER, "--output", tmp_path / "out", *flags, "--", "echo", "{best:train}")

    (tmp_path / "b" / "model").write_text("y")
    output = run(RUNNER, "--output", tmp_path / "o", *flags, "--", "echo", "{best:train}", code=BAD_INPUT)
    assert "model was altered" in only_error(output)


def test_a_damaged_input_stops_the_step_before_its_program(tmp_path: Path) -> None:
    data = published(tmp_path / "data", {"train.csv": "1,2"})
    (data / "train.csv").write_text("1,3")

    output = step(tmp_path, TRAIN, 0.5, flags=("--input", f"data={data}"), code=BAD_INPUT)

    assert "train.csv was altered" in only_error(output)
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "out").exists()


def test_another_command_line_does_not_touch_what_is_there(tmp_path: Path) -> None:
    step(tmp_path, TRAIN, 0.5)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    refusal = step(tmp_path, TRAIN, 0.75, code=BAD_INPUT)

    assert "has files of another command line: name another directory, or delete this one" in only_error(refusal)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_what_another_command_line_began_is_not_gone_on_with(tmp_path: Path) -> None:
    script = "import sys; open(sys.argv[1] + '/checkpoint', 'w').write(sys.argv[2]); sys.exit(3)"
    step(tmp_path, script, 100, code=3)

    assert "another command line" in only_error(step(tmp_path, script, 500, code=BAD_INPUT))


def test_a_command_line_that_left_nothing_can_be_corrected(tmp_path: Path) -> None:
    script = "import sys; sys.exit(2 if sys.argv[2] == '--tree' else 0)"
    step(tmp_path, script, "--tree", code=2)

    assert "Published 0 files" in step(tmp_path, script, "--trees")


def test_a_result_of_other_inputs_is_made_again_from_nothing(tmp_path: Path) -> None:
    script = (
        "import os, sys; print('found', sorted(os.listdir(sys.argv[1])));"
        "open(sys.argv[1] + '/model', 'w').write(open(sys.argv[2] + '/x').read())"
    )
    flags = ("--input", f"data={tmp_path / 'data'}")
    published(tmp_path / "data", {"x": "1"})
    step(tmp_path, script, tmp_path / "data", flags=flags)
    (tmp_path / "data" / "x").unlink()
    published(tmp_path / "data", {"x": "2"})

    output = step(tmp_path, script, tmp_path / "data", flags=flags)

    assert "was made from other inputs" in output
    assert "found ['attempt.slipway-partial']" in output
    assert (tmp_path / "out" / "model").read_text() == "2"


def test_a_damaged_result_is_made_again_without_its_damaged_files(tmp_path: Path) -> None:
    script = (
        "import os, sys; print('found', sorted(os.listdir(sys.argv[1])));"
        "[open(f'{sys.argv[1]}/{name}', 'w').write(name) for name in 'ab']"
    )
    step(tmp_path, script)
    (tmp_path / "out" / "a").write_text("A")

    output = step(tmp_path, script)

    assert "Doing it again: " in output
    assert "found ['attempt.slipway-partial', 'b']" in output
    assert check(tmp_path / "out")


def test_what_a_killed_attempt_left_half_written_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "out").mkdir()
    host = socket.gethostname()[:32]
    left, alive = (
        tmp_path / "out" / f".manifest.json.{host}-{number}-0a1b2c3d.slipway-partial"
        for number in (ended.pid, os.getpid())
    )
    left.touch()
    alive.touch()
    step(tmp_path, "import sys; open(sys.argv[1] + '/a', 'w')")
    assert not left.exists()
    assert alive.exists()


@pytest.mark.parametrize("name", ["manifest.json", "a", "attempt.slipway-partial"])
def test_a_directory_in_place_of_a_file_does_not_fail_every_run(tmp_path: Path, name: str) -> None:
    script = "import sys; [open(f'{sys.argv[1]}/{name}', 'w').write(name) for name in 'ab']"
    step(tmp_path, script)
    (tmp_path / "out" / name).unlink(missing_ok=True)
    (tmp_path / "out" / name).mkdir()
    (tmp_path / "out" / name / "own").touch()
    if name.startswith("attempt"):
        (tmp_path / "out" / "manifest.json").unlink()

    output = step(tmp_path, script)

    assert sorted(check(tmp_path / "out").files) == ["a", "b"]
    assert (tmp_path / "out" / f"{name}.1.slipway-partial" / "own").is_file()
    assert f"{name} is a directory where a file belongs" in output


@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM"])
def test_a_disrupted_training_goes_on_from_its_checkpoint(tmp_path: Path, ending: str) -> None:
    (tmp_path / "program.py").write_text(CHECKPOINTS)
    # That it ends well when it is told to stop does not make its work done.
    words = (tmp_path / "out", 4, tmp_path / "told", 0)
    arguments = ("--output", tmp_path / "out", "--code", tmp_path, "--", sys.executable, "program.py", *words)
    with subprocess.Popen(
        command(RUNNER, *arguments),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert lines[-1] == "epoch 2 done\n"
        if ending == "SIGKILL":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.terminate()
        rest = process.communicate(timeout=20)[0]

    assert not (tmp_path / "out" / "manifest.json").exists()
    if ending == "SIGTERM":
        assert process.returncode == INTERRUPTED
        assert (tmp_path / "told").read_text() == "SIGTERM"
        assert only_error(rest).startswith(
            "error: command: stopped by SIGTERM: the same command goes on with what"
        )
    output = run(RUNNER, *arguments)
    assert "starts after epoch 2\nepoch 3 done\nepoch 4 done\n" in output
    assert sorted(check(tmp_path / "out").files) == ["checkpoint", "model"]


KEPT_ON_DISK = """
import json, os, pathlib, signal, sys, time
output, code = pathlib.Path(sys.argv[1]), int(sys.argv[2])
folder = pathlib.Path(os.environ["SLIPWAY_CHECKPOINT"])
assert sys.argv[3] == f"--to={folder}"

def save(name, step):
    temporary = folder / f"{name}.new"
    temporary.write_text(str(step))
    temporary.replace(folder / name)

def stop(*_):
    notice = json.loads(pathlib.Path(os.environ["SLIPWAY_NOTICE"]).read_text())
    assert 0 < notice["seconds"] < 30
    print("told:", notice["reason"], flush=True)
    save("state", "3")
    sys.exit(code)

signal.signal(signal.SIGUSR1, stop)
state = folder / "state"
done = int(state.read_text()) if state.exists() else 0
assert not pathlib.Path(os.environ["SLIPWAY_NOTICE"]).exists()
print("starts after step", done, "as", os.getpid(), flush=True)
if not done:
    save("state", 2)
    time.sleep(60)
(output / "model").write_text(f"after {done}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["killed", "told", "limited", "failed"])
def test_a_disrupted_training_goes_on_from_what_was_copied_beside_it(tmp_path: Path, ending: str) -> None:
    (tmp_path / "program.py").write_text(
        KEPT_ON_DISK.replace("time.sleep(60)", "1 / 0" if ending == "failed" else "time.sleep(60)")
    )
    settings = json.dumps({"signal": "SIGUSR1", "grace": 30, "every": 3600})
    arguments = (
        RUNNER, "--output", tmp_path / "out", "--code", tmp_path, "--checkpoints", settings,
        "--", sys.executable, "program.py", tmp_path / "out", 0, "--to={checkpoint}",
    )  # fmt: skip
    notice_file = tmp_path / "notice"
    process = start(*arguments, SLIPWAY_NOTICE=str(notice_file))
    assert process.stdout is not None
    log = ""
    while ending != "failed" and "is in the store" not in log:
        log += (line := process.stdout.readline())
        assert line, log
    if ending == "killed":
        process.kill()
        os.kill(int(log.split(" as ")[1].split()[0]), signal.SIGKILL)
    elif ending == "told":
        process.send_signal(signal.SIGTERM)
    elif ending == "limited":
        notice.end(process, notice_file, 20, "the budget is spent")
    rest, _ = process.communicate(timeout=60)
    told = ending in {"told", "limited"}
    if told:
        assert process.returncode == INTERRUPTED
        assert f"told: {'the budget is spent' if ending == 'limited' else notice.POD}" in rest
    again = run(*arguments)
    assert f"starts after step {3 if told else 2}" in again
    assert set(check(tmp_path / "out").files) == {"model"}
    assert not list(tmp_path.glob("out/*slipway-partial"))


def test_the_exit_code_is_the_programs(tmp_path: Path) -> None:
    output = step(tmp_path, "import sys; sys.exit(77)", code=77)
    assert only_error(output).endswith("failed without a word (exit code 77)")
    output = step(tmp_path, "print('reads rows'); raise ValueError('expected 3 columns')", code=1)
    assert output.splitlines()[-1] == "error: churn.train: ValueError: expected 3 columns (exit code 1)"
    output = step(tmp_path, "import pandaz", code=1)
    assert "note: neither its image nor its requirements have the module pandaz" in output

    killed = step(tmp_path, "import os; os.kill(os.getpid(), 9)", code=137)
    assert "was ended by SIGKILL" in only_error(killed)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["torchrum"], "there is no program 'torchrum' in this image, nor among the packages of the step's"),
        (["train.py"], "lies in the step's code: write its interpreter before it, as in `python train.py`"),
        (["./train.py"], "'./train.py' in {code} is not executable"),
        (["./fit.py"], "there is no program './fit.py' in {code}"),
        (["./garbage"], "'./garbage' cannot be started: Exec format error"),
    ],
)
def test_a_program_that_cannot_be_started_is_named_with_its_step(
    tmp_path: Path, words: list[str], reason: str
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "garbage").write_bytes(b"\x00garbage")
    (tmp_path / "garbage").chmod(0o755)
    output = run(
        RUNNER, "--output", tmp_path / "out", "--step", "churn.fit", "--code", tmp_path,
        "--", *words, code=BAD_INPUT,
    )  # fmt: skip
    error = only_error(output)
    assert error.startswith("error: churn.fit: ")
    assert reason.format(code=tmp_path) in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["--output", "x"],
        ["--output", "x", "--input", "data", "--", "true"],
        ["--output", "x", "--input", "a=b", "--input", "a=c", "--", "true"],
        ["--output", "x", "--best", "train=most:m.json#/a:a,b", "--", "true"],
        ["--output", "x", "--best", "train=max:m.json#/a:a,b", "--", "true"],
        ["--output", "x", "--result", "m=../m.json", "--", "true"],
        ["--output", "x", "--secret", "NOT_THERE", "--", "true"],
    ],
)
def test_a_wrong_command_line_is_refused(tmp_path: Path, arguments: list[str]) -> None:
    output = run(RUNNER, *arguments, code=USAGE)
    assert "error: " in output
    assert "Traceback" not in output
    assert not (ROOT / "x").exists()


KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nsecond+line/of+key==\n-----END KEY-----\n"


def test_a_secret_is_in_nothing_that_the_program_prints(tmp_path: Path) -> None:
    script = """
import base64, json, os, sys, time, urllib.parse
token, key = os.environ["TOKEN"], os.environ["KEY"]
print("plain", token, flush=True)
print("to stderr", token, file=sys.stderr)
sys.stdout.write("split " + token[:7]); sys.stdout.flush(); time.sleep(0.1); print(token[7:])
print(key); print(repr(key)); print(json.dumps({"key": key}))
print(base64.b64encode(token.encode()).decode())
print(base64.b64encode(f"user:{token}".encode()).decode())
print("https://x/?q=" + urllib.parse.quote(token, safe=""))
print("no such thing as secre")
raise ValueError(token)
"""
    token = "s3cr3t/täken+of=mine"
    (tmp_path / "program.py").write_text(script)
    output = run(
        RUNNER, "--output", tmp_path / "out", "--code", tmp_path,
        "--secret", "TOKEN", "--secret", "KEY", "--", sys.executable, "program.py", code=1, TOKEN=token, KEY=KEY,
    )  # fmt: skip

    assert "plain [secret]\n" in output
    assert "to stderr [secret]\n" in output
    assert "split [secret]\n" in output
    assert "no such thing as secre\n" in output
    assert "ValueError: [secret]\n" in output
    forms = [token, urllib.parse.quote(token, safe=""), base64.b64encode(token.encode()).decode()]
    forms += [base64.b64encode(f"user:{token}".encode()).decode()[8:-4], "MIIEvQIB", "line/of"]
    assert [form for form in forms if form in output] == []


def test_output_that_is_masked_comes_without_delay(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import time; print('Epoch 1/5: ', end=''); time.sleep(60)")
    process = start(
        RUNNER, "--output", tmp_path / "out", "--code", tmp_path, "--secret", "TOKEN",
        "--", sys.executable, "program.py", TOKEN="hunter22",
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.read(11) == "Epoch 1/5: "
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_no_secret_is_recorded(tmp_path: Path) -> None:
    run(RUNNER, "--output", tmp_path / "out", "--secret", "TOKEN", "--", "true", TOKEN="hunter22")
    assert "hunter22" not in (tmp_path / "out" / "manifest.json").read_text()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_secrets_are_masked_however_the_stream_is_cut(size: int) -> None:
    secrets = ["abcabd", "abd-longer", "longest\nof them all", "x"]
    text = b"ab abcabcabd abd-longer abd-longe longest of longest\nof them all of them all 1x2 abcab"
    masker = Masker(secrets)

    shown = b"".join(masker.feed(text[at : at + size]) for at in range(0, len(text), size)) + masker.finish()

    assert shown == (b"ab abc[secret] [secret] abd-longe [secret] of [secret] [secret] 1[secret]2 abcab")


def test_a_secret_that_is_cut_off_at_the_end_is_masked() -> None:
    masker = Masker(["0123456789"])
    assert masker.feed(b"it is 01234567") + masker.finish() == b"it is [secret]"


def test_the_runtime_is_python_3_9_and_needs_nothing_else() -> None:
    """It runs in any image. TensorFlow is for programs that have it, pip has a copy of `packaging`, and a search
    brings Optuna and matplotlib in a folder of its own.
    """
    others = {
        "accelerator.py": {"numpy", "tensorflow"},
        "devices.py": {"tensorflow"},
        "packages.py": {"packaging"},
        "pictures.py": {"matplotlib", "optuna"},
        "study.py": {"optuna"},
    }
    files = [path for path in (ROOT / "slipway/runtime").rglob("*.py") if "image_builds" not in path.parts]
    assert files

    for path in files:
        known = {*sys.stdlib_module_names, *others.get(path.name, set())}
        for node in ast.walk(ast.parse(path.read_text(), str(path), feature_version=(3, 9))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            others_of_package = [name for name in names if not name.startswith("slipway.runtime")]
            assert {name.partition(".")[0] for name in others_of_package} <= known, path


def test_it_runs_with_nothing_but_the_standard_library(tmp_path: Path) -> None:
    module = ["-S", "-m", "slipway.runtime.steps.command"]
    command_line = [sys.executable, *module, "--output", str(tmp_path / "out")]
    result = subprocess.run(
        [*command_line, "--", "true"], cwd=ROOT, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (result.returncode, errors(result.stderr)) == (0, [])
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["step"] == "command"


def test_sigterm_reaches_the_program_of_a_script_and_ends_the_script(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CHECKPOINTS)
    words = [
        word.format_map({"output": tmp_path / "out", "told": tmp_path / "told", "python": sys.executable})
        for word in command_of("{python} program.py {output} 4 {told} 0\ntouch {output}/next")
    ]
    with subprocess.Popen(
        command(RUNNER, "--output", tmp_path / "out", "--code", tmp_path, "--", *words),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "epoch 2 done\n":
            pass
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == INTERRUPTED
    # Only what had begun was told, and the script waited for it.
    assert (tmp_path / "told").read_text() == "SIGTERM"
    assert not (tmp_path / "out" / "next").exists()
