"""Gives containers that run a program of the pipeline's own the packages that they have in a cluster."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slipway.infra.kubernetes.apps.pod import INSTALLER, READER, SUPPLIED, WAITER
from slipway.infra.kubernetes.run import HOLD, MEASURE, RUNNER, STARTER, TESTER
from slipway.infra.pipelines.file.shape import STEP_KEYS
from slipway.infra.pipelines.images import has_tensorflow
from slipway.infra.placed import FOLDERS
from slipway.infra.placement import shipping
from slipway.infra.places import LIBRARY
from slipway.rehearse.cluster.cluster_objects import RefusedError
from slipway.rehearse.cluster.kubelet import Pod, Prepare, PreparedCommand, in_project
from slipway.rehearse.cluster.pods import Container, PodSpec
from slipway.rehearse.machine.environments import (
    Environment,
    EnvironmentFailedError,
    Environments,
    Software,
    has_all_of,
)
from slipway.rehearse.machine.programs import PYTHON, Program, search_path

RUNNERS: Mapping[str, Mapping[str, str]] = {
    RUNNER: {},
    **{key.part.module: key.part.packages for key in STEP_KEYS if key.part.module},
}
"""What starts commands, each with the lock files of what it needs itself."""


@dataclass(frozen=True)
class Containers:
    """Prepares the containers of a rehearsal; ``programs`` are by the logical name of what runs them."""

    programs: Mapping[str, Program]
    environments: Environments
    _told: set[Path] = field(default_factory=set[Path])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of_job(self, job: str, note: Callable[[str], None]) -> Prepare:
        """Prepares the containers of the Job with this logical name.

        ``note`` gets a remark for packages that are installed, and for substitutes of programs. The project's
        Python runs modules of the project.
        """

        def wrapped(pod: Pod, container: Container, words: Sequence[str], folder: Path) -> PreparedCommand | None:
            if list(words[1:2]) != ["-m"] or words[2] not in {MEASURE, HOLD, TESTER}:
                return prepare(pod, container, words, folder)
            begins = words.index("--") + 1
            inner = wrapped(pod, container, words[begins:], folder) or in_project(words[begins:])
            return PreparedCommand([sys.executable, *words[1:begins], *inner.words], inner.path)

        def prepare(pod: Pod, container: Container, words: Sequence[str], folder: Path) -> PreparedCommand | None:
            if list(words[1:3]) == ["-m", shipping.PACKAGES_MODULE]:
                software = Software((folder / _flags(words)["--requirements"],), has_tensorflow(container.image))
                return _in(self._provide(f"step {job}", software, pod, note), words)
            if list(words[1:2]) != ["-m"] or words[2] not in RUNNERS:
                return None
            for name, lock in RUNNERS[words[2]].items():
                # The step that publishes them found that nothing is lacking.
                software = Software((LIBRARY / lock,), has_tensorflow(container.image))
                needed = self._provide(f"step {job}", software, pod, note)
                words = [*words[:3], f"--{name}-path", str(needed.packages), *words[3:]]
            program = self.programs.get(job)
            if program is None:
                software = Software(tensorflow=has_tensorflow(container.image))
                return _in(self._provide(f"step {job}", software, pod, note), words)
            environment = self._environment(program, pod, note)
            prepared = _in(environment, words)
            if program.is_here(*([environment.bin] if program.installed else [])):
                return prepared
            if not program.substitute:
                raise RefusedError(program.nowhere)
            if program.installed:
                # Of all others it was said before anything ran.
                note(program.replacing)
            begins = prepared.words.index("--") + 1
            own_words, places = prepared.words[:begins], _places(prepared.words[:begins], container)
            substitute = [word.format_map(places) for word in program.substitute]
            return PreparedCommand([*own_words, *_starting(prepared.words[begins:]), *substitute], prepared.path)

        return wrapped

    def instead_of(self, server: str, pod: PodSpec) -> PodSpec:
        """``pod`` of the service or app with this logical name, or what runs in its place on this machine."""
        program = self.programs.get(server)
        if program is None or program.installed or program.is_here() or not program.substitute:
            return pod
        started = [*pod.container.command, *pod.container.args]
        at_start = started[1:3] == ["-m", READER]
        before = started[: started.index("--") + 1] if at_start else []
        words = [*before, *program.instead(pod.annotations, at_start=at_start)]
        return replace(pod, container=replace(pod.container, command=words, args=[]))

    def of_server(self, server: str, note: Callable[[str], None]) -> Prepare:
        """Prepares the containers of the service or app with this logical name.

        ``note`` gets a remark for packages that are installed. The project's Python runs modules of the project if
        it has all packages that the app's lock file pins.
        """

        def supplied(pod: Pod, container: Container, words: Sequence[str], folder: Path) -> PreparedCommand | None:
            if list(words[1:3]) == ["-m", WAITER]:
                return in_project(words)
            if list(words[1:2]) != ["-m"] or words[2] not in {SUPPLIED, READER, TESTER}:
                return prepare(pod, words)
            begins = words.index("--") + 1
            rest = words[begins:]
            inner = supplied(pod, container, rest, folder) or in_project(rest)
            return replace(inner, words=[sys.executable, *words[1:begins], *inner.words])

        def prepare(pod: Pod, words: Sequence[str]) -> PreparedCommand | None:
            program = self.programs.get(server)
            if program is None or _is_of_project(program):
                return None
            if list(words[1:2]) == ["-m"] and words[2] == INSTALLER:
                self._environment(program, pod, note)
                sentence = f"{program.software} is in the environment of this rehearsal"
                return PreparedCommand([sys.executable, "-c", f"print({sentence!r})"], search_path())
            if (fake := program.fake) and not program.is_here():
                command = [sys.executable, "-m", fake.module, *words[1:]]
                return PreparedCommand(command, search_path(), {"PYTHONPATH": str(LIBRARY)})
            if not program.installed and words[0] not in PYTHON and program.kind == "service":
                return PreparedCommand(words, search_path())
            environment = self._environment(program, pod, note)
            if words[0] in PYTHON:
                return _in(environment, words)
            if program.installed and not program.is_here(environment.bin):
                raise RefusedError(program.nowhere)
            return PreparedCommand(words, [str(environment.bin), *search_path()])

        return supplied

    def _environment(self, program: Program, pod: Pod, note: Callable[[str], None]) -> Environment:
        return self._provide(f"{program.kind} {program.of}", program.software, pod, note)

    def _provide(self, who: str, software: Software, pod: Pod, note: Callable[[str], None]) -> Environment:
        try:
            environment = self.environments.provide(software, pod.stop, pod.write)
        except EnvironmentFailedError as error:
            raise RefusedError(
                f"{who}: its packages ({software}) cannot be installed here: {error}; check that the lock "
                "file has hashes for this Python and that the package index can be reached: uv reads "
                "UV_DEFAULT_INDEX and its own settings, not pip's"
            ) from error
        place = Path(*environment.folder.parts[-3:])
        with self._lock:
            known = environment.folder in self._told
            self._told.add(environment.folder)
        if environment.made:
            note(f"made an environment with {software} in {environment.seconds:.1f} s: {place}")
        elif software.locks and not known:
            note(f"uses the environment with {software} that was made before: {place}")
        return environment


def _starting(words: Sequence[str]) -> Sequence[str]:
    """The part of ``words``, a step's command line, that starts its program in another folder than its code's."""
    named = next((index for index, word in enumerate(words) if word.endswith(f"/{STARTER}")), None)
    return [] if named is None else words[: named + 2]


def _is_of_project(program: Program) -> bool:
    """Whether it is a module of the project's, whose Python has all that the lock file of its app pins."""
    return bool(program.app and program.app.module) and all(map(has_all_of, program.software.locks))


def _in(environment: Environment, words: Sequence[str]) -> PreparedCommand:
    """``words``, of which the first is Python, in ``environment``."""
    return PreparedCommand([str(environment.bin / "python3"), *words[1:]], [str(environment.bin), *search_path()])


def _flags(words: Sequence[str]) -> dict[str, str]:
    """The values of the options in ``words``, of each the last."""
    return dict(_options(words))


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    options = list(words[: words.index("--")] if "--" in words else words)
    for word, value in zip(options, [*options[1:], ""], strict=True):
        name, equals, joined = word.partition("=")
        if name.startswith("--"):
            yield (name, joined) if equals else (name, value)


def _places(words: Sequence[str], container: Container) -> "_Places":
    """The values of references in a command line, from the options of its runner and the mounts of data."""
    output = Path(_flags(words)["--output"])
    # `slipway.infra.kubernetes.run.Run.path` is pipeline, step and digest.
    places = _Places(output=str(output), store=str(output.parents[2]))
    for mount in container.mounts:
        folder, _, name = mount.path.rpartition("/")
        if folder == FOLDERS and mount.sub_path:
            places[name] = f"{places['store']}/{mount.sub_path}"
    for name, value in _options(words):
        key, _, place = value.partition("=")
        if name == "--input":
            places[key] = place
        elif name == "--best":
            # The runner puts the directory of the best in its place.
            places[key] = f"{{best:{key}}}"
    return places


class _Places(dict[str, str]):
    """Leaves what the runner is not told of as it is."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"
