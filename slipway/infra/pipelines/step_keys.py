"""The contract of a key that a feature adds to steps, and of what the key makes of a step: a part of it.

A step without any part runs its program once, in one pod.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import Field

from slipway.infra.pipelines.results import Result
from slipway.infra.schema.base import Model, annotation_of
from slipway.infra.schema.problems import Finding, Path

KILLED, INTERRUPTED = 137, 143
"""Exit codes of a program that was killed, by want of memory for one, and of one that was told to stop. Neither
says that the work cannot be done."""


@dataclass(frozen=True)
class InPod:
    """What a part is told where the pods of its step are declared."""

    directories: Mapping[str, str]
    """Where the pod has what the references in the step's arguments stand for, by their names."""
    services: Mapping[str, tuple[str, str]]
    """Host and port of each service that the step connects to, and the variable with its password, by its name."""
    hosts: Sequence[str]
    """The host names of the pods of a group by their index, which the kubelet completes."""
    gpus: int
    """What each pod asks for."""
    surroundings: str
    """A digest of what decides the result of every single item."""


class StepPart:
    """What one key makes of a step; by default nothing. Those of features are frozen dataclasses."""

    key: ClassVar[str] = ""
    """The key of the step in ``pipeline.yaml``."""
    pods_key: ClassVar[str] = ""
    """The key of the step in a stack file that says how many pods it has."""
    module: ClassVar[str] = ""
    """What starts the step's command, in place of `slipway.runtime.steps.command`; empty: that."""
    packages: ClassVar[Mapping[str, str]] = {}
    """Lock files of what its module needs, by the name of the flag that gets the directory of the packages."""
    tolerated: ClassVar[Sequence[int]] = ()
    """Exit codes of its pods that are no failures of the step: another pod takes the place of that one."""
    is_indexed: ClassVar[bool] = False
    """Each of its pods has an index, which the next pod gets where one is lost."""
    is_shared: ClassVar[bool] = False
    """Its pods take work from one another, item by item, so that they have to be on one pool. Each run of the
    program has an output of its own, known once it starts."""

    pods: int = 1
    """How many pods of the step run at once."""
    wait: int = 0
    """Seconds that the pods of a group which are there wait for the others."""
    results: Sequence[Result] = ()
    """What it leaves that is worth showing, beside the results of the step."""

    @property
    def ports(self) -> Mapping[str, int]:
        """Where the pods of a group, each on a node of its own, reach one another, by purpose; empty: no group."""
        return {}

    @property
    def references(self) -> Collection[str]:
        """References in the step's arguments for which its module puts in what they stand for."""
        return ()

    @property
    def reads(self) -> Collection[str]:
        """The inputs and data in which its items are."""
        return ()

    @property
    def decides(self) -> Mapping[str, object]:
        """What of it the step's result follows from."""
        return {}

    @property
    def surrounds(self) -> Mapping[str, object]:
        """What of it the result of every single item follows from, too."""
        return {}

    def tells(self, pod: InPod) -> Mapping[str, object]:
        """How the Job runs by it, which changes no result."""
        return {}

    def fill(self, fill: Callable[[str], str]) -> Self:
        """The same, with places of the store filled into its texts."""
        return self

    def flags(self, pod: InPod) -> list[str]:
        """What its module has to know."""
        return []

    def flags_by_kubelet(self, pod: InPod) -> list[str]:
        """More of that, where the kubelet puts the values of variables in place of ``$(NAME)``."""
        return []


class StepKey:
    """A key that a feature adds to the steps of ``pipeline.yaml``; by default it does nothing.

    In its methods ``step`` is a `PipelineStep` and ``file`` a `PipelineFile`
    (`slipway.infra.pipelines.file.shape`); ``settings`` place the step in a stack file, and ``at`` is the place of
    the step.
    """

    name: ClassVar[str]
    part: ClassVar[type[StepPart]]
    """What it makes of a step."""
    fields: ClassVar[type[Model]]
    """A model with its field; with those of keys beside it, which mean nothing without it, too."""
    references: ClassVar[Mapping[str, str]] = {}
    """References in `run` that it gives a meaning, each with the fix where a step without the key has it."""
    reserved: ClassVar[Sequence[str]] = ()
    """Names that no input and no parameter may have beside those."""
    explains: ClassVar[Sequence[str]] = ()
    """What of `PlacedStep.decides` its causes tell of."""
    is_left_out: ClassVar[bool] = False
    """A step is read without it where something in it is wrong."""

    def written(self, step: Any) -> Any:
        """The key's value; None where the step has none."""
        return getattr(step, self.name)

    def settings(self, step: Any) -> Mapping[str, Any]:
        """The keys that it adds to the step in a stack file: type and field by name. ``step`` may lack the key."""
        return {}

    def words(self, step: Any) -> Sequence[str]:
        """Its texts with references, as those of `run`."""
        return ()

    def kept(self, step: Any) -> Collection[str]:
        """Parameters whose values the program gets with each run, and not from the stack file."""
        return ()

    def in_run(self, step: Any, file: Any) -> Collection[str]:
        """Which of its references `run` of the step may have."""
        return self.references if self.written(step) else ()

    def word_findings(self, at: Path, word: str, step: Any, file: Any, *, environment: bool) -> Iterator[Finding]:
        """Findings about a word of `run`, or of an ``environment``, of a step with the key, at its own place."""
        yield from ()

    def findings(self, file: Any) -> Iterator[Finding]:
        """Findings about the key in all steps of a file."""
        yield from ()

    def target_findings(self, at: Path, placed: Any, target: Any, draft: Any) -> Iterator[Finding]:
        """Findings about what is ``placed`` on a target of a draft (`slipway.infra.settings.checks.steps`)."""
        yield from ()

    def lighten(
        self, values: dict[str, Any], overlay: Mapping[str, Any], note: Callable[[str], None]
    ) -> dict[str, Any]:
        """The configuration ``values`` of a stack for this machine, with remarks; ``overlay`` has its own say."""
        return values

    def section_findings(self, at: Path, step: Any, settings: Any, file: Any) -> Iterator[Finding]:
        """Findings about what a stack file says of a step with the key."""
        yield from ()

    def connects(self, step: Any, settings: Any = None) -> Mapping[str, Path]:
        """The services that it needs, with their places below the step; all where no ``settings`` are given."""
        return {}

    def declare(self, step: Any, settings: Any, file: Any, fill: Callable[[str], str]) -> StepPart | None:
        """What it makes of the step; ``fill`` puts in values of parameters. None: nothing."""
        return None

    def causes(self, old: Any, new: Any) -> Iterator[str]:
        """Why a step runs again, or its Job is made anew, of two versions of its `PlacedStep`."""
        yield from ()

    def remarks(self, step: Any) -> Iterator[str]:
        """What is to be known of a step that runs again."""
        yield from ()


def told(words: Mapping[str, str], old: Any, new: Any) -> Iterator[str]:
    """What changed of `PlacedStep.tells`; ``words`` have the old and the new value, by name."""
    for name, text in words.items():
        if name in old.tells and name in new.tells and old.tells[name] != new.tells[name]:
            yield text.format(old.tells[name], new.tells[name])


def field_as(model: type[Model], key: str, default: Any) -> tuple[Any, Any]:
    """The field ``key`` of ``model`` for another model, with that default."""
    field = model.model_fields[key]
    return annotation_of(field), Field(default=default, description=field.description)
