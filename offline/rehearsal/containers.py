"""Gives the containers of steps that run a program of their own the packages that they have on a cluster."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.kubernetes.run import RUNNER
from infra.pipelines import packages
from infra.pipelines.images import has_tensorflow
from offline.rehearsal.cluster_objects import RefusedError
from offline.rehearsal.environments import Environment, EnvironmentFailedError, Environments, Software
from offline.rehearsal.kubelet import Pod, Prepare, Prepared
from offline.rehearsal.pods import Container
from offline.rehearsal.programs import Program, search_path


@dataclass(frozen=True)
class Containers:
    """Prepares the containers of a rehearsal; ``programs`` are by the logical name of their Job."""

    programs: Mapping[str, Program]
    environments: Environments
    _told: set[Path] = field(default_factory=set[Path])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of_job(self, job: str, note: Callable[[str], None]) -> Prepare:
        """Prepares the containers of the Job with this logical name.

        ``note`` is told of packages that are installed, and of what runs in another program's place. A module of
        the project's is left to the project's Python.
        """

        def prepare(pod: Pod, container: Container, words: Sequence[str], folder: Path) -> Prepared | None:
            if list(words[1:3]) == ["-m", packages.MODULE]:
                software = Software((folder / _flags(words)["--requirements"],), has_tensorflow(container.image))
                return _in(self._environment(job, software, pod, note), words)
            if list(words[1:3]) != ["-m", RUNNER]:
                return None
            program = self.programs.get(job)
            if program is None:
                software = Software(tensorflow=has_tensorflow(container.image))
                return _in(self._environment(job, software, pod, note), words)
            environment = self._environment(program.step, program.software, pod, note)
            prepared = _in(environment, words)
            if program.is_here(*([environment.bin] if program.installed else [])):
                return prepared
            if not program.substitute:
                raise RefusedError(
                    f"step {program.step} runs {program.name!r}, which is neither on this machine nor among the "
                    f"packages of {program.software}; {program.way_out}"
                )
            if program.installed:
                # Of all others it was said before anything ran.
                note(program.replacing)
            own = [*prepared.words[: prepared.words.index("--") + 1]]
            return Prepared([*own, *(word.format_map(_places(own)) for word in program.substitute)], prepared.path)

        return prepare

    def _environment(self, step: str, software: Software, pod: Pod, note: Callable[[str], None]) -> Environment:
        try:
            environment = self.environments.provide(software, pod.stop, pod.write)
        except EnvironmentFailedError as error:
            raise RefusedError(
                f"step {step}: its packages ({software}) cannot be installed here: {error}; check that the lock "
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


def _in(environment: Environment, words: Sequence[str]) -> Prepared:
    """``words``, of which the first is Python, in ``environment``."""
    return Prepared([str(environment.bin / "python3"), *words[1:]], [str(environment.bin), *search_path()])


def _flags(words: Sequence[str]) -> dict[str, str]:
    """The values of the options in ``words``, of each the last."""
    return dict(_options(words))


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    own = list(words[: words.index("--")] if "--" in words else words)
    for word, value in zip(own, [*own[1:], ""], strict=True):
        name, equals, joined = word.partition("=")
        if name.startswith("--"):
            yield (name, joined) if equals else (name, value)


def _places(words: Sequence[str]) -> "_Places":
    """What references in a command line stand for, as the runner is told by its options."""
    output = Path(_flags(words)["--output"])
    # `infra.kubernetes.run.Run.path` is pipeline, step and digest.
    places = _Places(output=str(output), store=str(output.parents[2]))
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
