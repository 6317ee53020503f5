"""A step that runs a program of its own finds what its lock file pins, what its image has, and nothing else."""

import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.rehearse.machine import environments
from slipway.rehearse.machine.environments import Environment, EnvironmentFailedError, Environments, Software
from slipway.rehearse.machine.processes import CancelledError, Reaper, Stop
from tests.support.rehearsing import wait_until
from tests.support.wheels import offline, pin, write_wheel

ENTRY = b"[console_scripts]\nshout = shout:main\n"


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    made = Reaper()
    yield made
    made.close()


@pytest.fixture
def place(tmp_path: Path, reaper: Reaper, monkeypatch: pytest.MonkeyPatch) -> Environments:
    """Environments of the wheels in the folder ``wheels``."""
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return Environments(tmp_path / "environments", reaper)


def lock(folder: Path, name: str, version: str = "1.0", says: str = "hello", extra: bytes = b"") -> Path:
    """A lock file that pins one package, which has a module and a program of its name."""
    content = {f"{name}.py": f"def main(): print({says!r})".encode()}
    if extra:
        content[f"{name}-{version}.dist-info/entry_points.txt"] = extra
    wheel = write_wheel(folder / "wheels", name, version, content)
    file = folder / f"{name}-{version}-{says}.txt"
    file.write_text(pin(name, version, wheel), encoding="utf-8")
    return file


def provide(place: Environments, *locks: Path, tensorflow: bool = False) -> Environment:
    return place.provide(Software(locks, tensorflow), Stop(), lambda _: None)


def run(environment: Environment, *command: str) -> subprocess.CompletedProcess[str]:
    program = str(environment.bin / command[0])
    return subprocess.run(
        [program, *command[1:]], check=False, capture_output=True, text=True, env={"TF_CPP_MIN_LOG_LEVEL": "3"}
    )


def imports(environment: Environment, *names: str) -> list[bool]:
    """Which of the modules Python finds there."""
    script = f"import importlib.util; print([importlib.util.find_spec(n) is not None for n in {names!r}])"
    return eval(run(environment, "python", "-c", script).stdout)


@pytest.mark.slow
def test_it_has_the_lock_file_and_nothing_of_the_project_and_is_made_once_for_a_content(
    place: Environments, tmp_path: Path
) -> None:
    first = lock(tmp_path, "shout", extra=ENTRY)
    environment = provide(place, first)
    assert environment.made
    assert imports(environment, "shout", "pulumi", "tensorflow", "numpy") == [True, False, False, False]
    assert run(environment, "shout").stdout == "hello\n"
    copy = tmp_path / "copy.txt"
    copy.write_bytes(first.read_bytes())
    again = provide(place, copy)
    assert (again.made, again.folder) == (False, environment.folder)
    other = provide(place, lock(tmp_path, "shout", says="other"))
    assert other.made
    assert other.folder != environment.folder


@pytest.mark.slow
def test_without_a_lock_file_it_has_pip_alone(place: Environments) -> None:
    assert imports(provide(place), "json", "pip", "packaging", "numpy") == [True, True, False, False]


@pytest.mark.slow
def test_what_programs_import_is_compiled_and_the_packages_tests_are_not(
    place: Environments, tmp_path: Path
) -> None:
    modules = {
        "big/__init__.py": b"",
        "big/tests/__init__.py": b"",
        "big/testing.py": b"",
        "big/template.py": b"{{",
    }
    wheel = write_wheel(tmp_path / "wheels", "big", "1.0", modules)
    (tmp_path / "big.txt").write_text(pin("big", "1.0", wheel), encoding="utf-8")
    folder = provide(place, tmp_path / "big.txt").folder
    compiled = {str(path.relative_to(path.parents[1])) for path in folder.glob("lib/*/site-packages/big/**/*.pyc")}
    assert {name.partition(".")[0] for name in compiled} == {"__pycache__/__init__", "__pycache__/testing"}
    assert len(compiled) == 2


@pytest.mark.slow
def test_tensorflow_s_image_is_seen_without_the_rest_of_the_project(place: Environments, tmp_path: Path) -> None:
    environment = provide(place, lock(tmp_path, "shout"), tensorflow=True)
    names = ("shout", "tensorflow", "keras", "numpy", "google.protobuf", "pulumi", "sklearn", "PIL", "pydantic")
    assert imports(environment, *names) == [True] * 5 + [False] * 4
    version = "from importlib import metadata; print(metadata.version('keras'))"
    assert (
        run(environment, "python", "-c", version).stdout.strip()
        == environments.closure(["tensorflow-cpu", "tensorflow"])["keras"].version
    )
    script = "import tensorflow as tf; print(int(tf.reduce_sum(tf.constant([1, 2]))))"
    assert run(environment, "python", "-c", script).stdout == "3\n"


@pytest.mark.slow
def test_a_package_of_the_lock_file_hides_the_image_s(place: Environments, tmp_path: Path) -> None:
    environment = provide(place, lock(tmp_path, "termcolor", "99.0"), tensorflow=True)
    script = "import termcolor; from importlib import metadata; print(metadata.version('termcolor'))"
    assert run(environment, "python", "-c", script + "; termcolor.main()").stdout == "99.0\nhello\n"


def test_a_folder_that_others_share_shows_only_what_is_linked(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name, module in (("mine", "shared/mine/code.py"), ("theirs", "shared/theirs.py")):
        info = site / f"{name}-1.0.dist-info"
        (site / module).parent.mkdir(parents=True, exist_ok=True)
        (site / module).write_text("", encoding="utf-8")
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        files = [module, f"{info.name}/METADATA", f"{info.name}/RECORD", "../../bin/tool"]
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files), encoding="utf-8")
    distributions = {
        distribution.name: distribution for distribution in environments.metadata.distributions(path=[str(site)])
    }
    environments.link({"mine": distributions["mine"]}, tmp_path / "image")
    assert sorted(path.relative_to(tmp_path / "image").as_posix() for path in (tmp_path / "image").rglob("*")) == [
        "mine-1.0.dist-info",
        "shared",
        "shared/mine",
    ]
    assert (tmp_path / "image/shared/mine/code.py").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["hash", "missing", "unhashed"])
def test_what_cannot_be_installed_is_said_and_left_nowhere(
    place: Environments, tmp_path: Path, broken: str
) -> None:
    file = lock(tmp_path, "shout")
    texts = {
        "hash": "shout==1.0 --hash=sha256:" + "0" * 64,
        "missing": "nothing-like-this==1.0 --hash=sha256:" + "0" * 64,
        "unhashed": "shout==1.0",
    }
    good = file.read_text(encoding="utf-8")
    file.write_text(texts[broken], encoding="utf-8")
    with pytest.raises(EnvironmentFailedError, match={"missing": "nothing-like-this"}.get(broken, "(?i)hash")):
        provide(place, file)
    assert place.known(Software((file,))) is None
    file.write_text(good, encoding="utf-8")
    assert imports(provide(place, file), "shout") == [True]


def test_a_lock_file_that_is_gone(place: Environments, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailedError, match="No such file"):
        provide(place, tmp_path / "gone.txt")


@pytest.mark.slow
def test_two_that_need_it_at_once_make_it_once(place: Environments, tmp_path: Path) -> None:
    file = lock(tmp_path, "shout")
    made: list[Environment] = []
    threads = [threading.Thread(target=lambda: made.append(provide(place, file))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(environment.made for environment in made) == [False, False, True]
    assert imports(made[0], "shout") == [True]


@pytest.mark.parametrize("damage", ["lost", "altered", "mark", "killed"])
@pytest.mark.slow
def test_what_was_damaged_is_made_anew(place: Environments, tmp_path: Path, damage: str) -> None:
    file = lock(tmp_path, "shout", extra=ENTRY)
    folder = provide(place, file).folder
    [module] = folder.glob("lib/*/site-packages/shout.py")
    if damage == "mark":
        (folder / environments.WHOLE).write_text("{")
    else:
        module.unlink()
    if damage == "altered":
        # As a new file: uv may have linked it to its cache.
        module.write_text("def main(): print('other')")
    if damage == "killed":
        # As a kill would leave it that came while files were written.
        (folder / environments.WHOLE).unlink()
    again = provide(place, file)
    assert (again.made, again.folder) == (True, folder)
    assert run(again, "shout").stdout == "hello\n"
    assert not provide(place, file).made


def test_a_wait_for_another_one_s_turn_ends_when_it_is_asked_to(place: Environments, tmp_path: Path) -> None:
    stop = Stop()
    with place._alone(Stop()):
        threading.Timer(0.2, lambda: stop.request("interrupted", 0)).start()
        with pytest.raises(CancelledError):
            place.provide(Software((lock(tmp_path, "shout"),)), stop, lambda _: None)


def test_an_installation_ends_at_once_when_it_is_asked_to(
    place: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "uv"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nsleep 60\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr("slipway.rehearse.machine.environments.shutil.which", lambda *_, **__: str(program))
    stop = Stop()

    def ask() -> None:
        wait_until((tmp_path / "started").exists)
        stop.request("interrupted", 30)

    threading.Thread(target=ask).start()
    began = time.monotonic()
    with pytest.raises(CancelledError):
        place.provide(Software(), stop, lambda _: None)
    assert time.monotonic() - began < 25


INSTALLING = """
pip install --quiet shout whisper==2.0 && python3 -m pip install --quiet --user murmur && python -c "
import murmur, shout, sys, whisper
for module in (murmur, shout, whisper): module.main()
print([path for path in sys.path if path.startswith(sys.base_prefix) and 'packages' in path])"
"""


@pytest.mark.slow
def test_what_a_program_installs_comes_after_its_lock_file_and_before_its_image(
    place: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = lock(tmp_path, "shout", says="locked")
    for name, version, said in (("whisper", "1.0", "image"), ("whisper", "2.0", "new"), ("murmur", "1.0", "new")):
        module = {f"{name}.py": f"def main(): print({said!r})".encode()}
        wheel = write_wheel(tmp_path / "wheels", name, version, module)
        if said == "image":
            zipfile.ZipFile(wheel).extractall(tmp_path / said)
    monkeypatch.syspath_prepend(tmp_path / "image")
    monkeypatch.setattr(environments, "TENSORFLOW", ("whisper",))
    made = provide(place, locked, tensorflow=True)
    paths = {"HOME": str(tmp_path), "PATH": f"{made.bin}:/usr/bin:/bin"}
    variables = {**paths, "PIP_USER": "1", **offline(tmp_path / "wheels")}
    done = subprocess.run(["sh", "-c", INSTALLING], env=variables, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["new", "locked", "new", "[]"], done.stderr


@pytest.mark.slow
def test_few_old_ones_are_kept_and_none_that_was_used_of_late(
    place: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "KEPT", 2)
    now = time.time()
    new, old, older, half, *others = (f"{name:0>16}" for name in ("e", "d", "0", "f", "mine", "1"))
    for name in (new, old, older, half, others[0]):
        (place.folder / name).mkdir(parents=True)
        (place.folder / name / "pyvenv.cfg").touch()
    for name, age in ((new, 60.0), (old, 2 * environments.RECENT), (older, 3 * environments.RECENT)):
        (place.folder / name / environments.WHOLE).write_text("{}", encoding="utf-8")
        os.utime(place.folder / name / environments.WHOLE, (now - age, now - age))
    (place.folder / others[1]).mkdir()
    made = provide(place)
    left = {path.name for path in place.folder.iterdir() if path.is_dir()}
    assert left == {new, made.folder.name, *others}


@pytest.mark.slow
def test_a_user_s_own_settings_for_python_do_not_reach_it(
    place: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(sys.executable).parent))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert imports(provide(place, lock(tmp_path, "shout")), "shout", "pulumi") == [True, False]


def test_it_is_said_where_the_tensorflow_of_an_image_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(Software(tensorflow=True)) == "TensorFlow's packages"
    monkeypatch.setattr(environments, "TENSORFLOW", ("no-such-package",))
    assert "slipway-ml[rehearse]" in str(Software((Path("requirements.txt"),), tensorflow=True))
    assert "TensorFlow" not in str(Software((Path("requirements.txt"),)))
