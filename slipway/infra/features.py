"""The contract of a feature: what a folder of ``slipway/features`` may add to the core, which names none of them.

Rooms import its files when they need them; each file and each name in it may be missing:

- ``feature.py``: ``FEATURE``, a `Feature`; ``residents`` of `Settings` and the first pool without GPUs of each
  cluster of the stack's own, each a `Resident`; ``leave_pipelines_out`` writes into the values of a stack file
  what its pipelines decide, which are left out of it then.
- ``verb.py``: verbs, ``VERBS``, and those below `show`, ``SHOWS``. It imports little, since the command asks for
  them before it reads any stack.
- ``checks.py``: ``check`` of a `Reading`, whose findings hold on every cloud.
- ``declared.py``: ``volumes``, ``mounts``, and ``arguments`` of what measures the step, of the pods of a `Run`;
  ``starter_flags`` and ``starter_rules`` of a pod that lets runs begin; ``measured``, the `Usage` by which steps
  are measured, of the core's and `Settings`; ``told``, what pods need beside, by the run's directory and cluster;
  ``check_update`` of `Settings`, Jobs and the stack's state raises where an update is refused; ``admissions`` of a
  `PlacedStack`, an `Admission` by the cluster where something holds back Jobs; ``creation_problem`` of an
  `ApiServer` and metadata, why `up` may not create that Job.
- ``policies.py``: ``POLICIES``, of every stack, and ``CHANGE_POLICIES``; ``refusals``, where and why an API server
  would not take an object that a program declares by itself; ``refusal``, why a rehearsal refuses a Job, of
  `Objects`, a `Resource` and its `JobSpec`.
- ``evaluation.py``: ``evaluate_other``, what the evaluation prints of a stack that has no settings of Slipway's.
- ``live.py``: ``observations`` that `doctor` makes of a `Cluster` with `Settings`, None where they are wrong;
  ``hold``, the `Hold` on a Job as `watch` has `Observed` it; ``end``, what `stop` does of an `ApiServer`, a
  namespace and a Job.
- ``rehearsal.py``: ``Recorder``, a `slipway.rehearse.engine.Recorder` of a store, a stack and the project's root.
- ``data/``: ``charts.toml``, ``in_place.toml`` and ``waiting.toml``, as the core has them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.features.registry import NAMES

if TYPE_CHECKING:
    from slipway.infra.schema.base import Model


@dataclass(frozen=True)
class Verb:
    """A verb: the module with its function, what it does in a line, and examples without the program's name.

    ``anywhere``: it also works outside of a project.
    """

    module: str
    function: str
    summary: str
    examples: Sequence[str]
    anywhere: bool = False

    def load(self) -> Any:
        """The function."""
        return getattr(import_module(self.module), self.function)


@dataclass(frozen=True)
class StandIn:
    """A module of the package that takes the command line of a program which no package index has.

    A rehearsal runs it where this machine lacks the program. It needs what the project's own environment has, and
    says in its log what it is. ``title`` completes the sentence "the app runs …".
    """

    module: str
    title: str


@dataclass(frozen=True)
class Feature:
    """What a feature adds; by default nothing.

    ``app_kinds`` are the kinds of apps that a ``pipeline.yaml`` may have, subclasses of `AppKind`; ``stand_ins``
    is what a rehearsal runs in place of programs, by their names. ``step_keys`` are keys that steps may have:
    `slipway.infra.pipelines.step_keys.StepKey`. ``sections`` are keys of a stack file, which may be left out, each
    with what `pydantic.create_model` takes: its type and its field. ``served`` are kinds of Kubernetes objects by
    the version of their API, such as ``example.org/v1``: a rehearsal refuses others of their group. ``watched``
    are the roots of the APIs of what `watch` reads beside Jobs and pods, by the plural.
    """

    app_kinds: "Sequence[type[Model]]" = ()
    step_keys: Sequence[Any] = ()
    stand_ins: Mapping[str, StandIn] = field(default_factory=dict[str, StandIn])
    sections: Mapping[str, Any] = field(default_factory=dict[str, Any])
    served: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])
    watched: Mapping[str, str] = field(default_factory=dict[str, str])


@cache
def parts(file: str, name: str) -> Sequence[Any]:
    """What the ``file`` of each feature has by that ``name``, in the order of the registry."""
    modules = (f"slipway.features.{feature}.{file}" for feature in NAMES)
    files = [import_module(module) for module in modules if find_spec(module)]
    return [getattr(module, name) for module in files if hasattr(module, name)]


def added(file: str, name: str, about: object) -> list[Any]:
    """What functions of features add, those of that ``name`` in that ``file``: each is called with ``about``."""
    return [item for add in parts(file, name) for item in add(about)]


@cache
def features() -> Sequence[Feature]:
    """What all features add, in the order of the registry."""
    return tuple(parts("feature", "FEATURE"))


def verbs(name: str = "VERBS") -> Mapping[str, Verb]:
    """The verbs of all features, by their words; with ``SHOWS`` those below `show`."""
    return {word: verb for of_feature in parts("verb", name) for word, verb in of_feature.items()}


def data_files(file: str) -> Sequence[Path]:
    """The files of this name among the data of features."""
    paths = (Path(__file__).parents[1] / "features" / name / "data" / file for name in NAMES)
    return [path for path in paths if path.is_file()]
