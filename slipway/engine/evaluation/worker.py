"""The process that evaluates stacks of one tree, and prints each as a line of JSON.

It is started in the tree's root, prints ``{"format": 1, "begun": NAME}`` before it evaluates a stack and
``{"format": 1, "stack": NAME, "document": …}`` after, and prints nothing else to stdout. Where the second line is
missing, the stack ended the process: it exceeded a limit (SIGPROF, SIGALRM, or `OUT_OF_MEMORY` as exit code), or
its program exited. Secrets are printed as digests under the key in ``SLIPWAY_PREVIEW_KEY``, which has to be the
same for all trees that are compared.

Other versions of Slipway start it, too, in an environment with the version that a project's base pins: by its name
(`slipway.preview.revisions.EVALUATION`), these options and the variable, which stay as they are.

Like `slipway.engine.evaluation.encoding`, this module imports nothing of the project that an older revision
lacks.
"""

import argparse
import contextlib
import gc
import json
import logging
import os
import resource
import secrets
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.engine.evaluation.encoding import FORMAT, SECRET, Encoder, Secrets, node, outputs

TRACEBACK = "_slipway_traceback"
"""The attribute of an error that keeps its traceback, because asyncio drops it."""


def describe_error(error: BaseException, tree: Path, hide: Callable[[str], str]) -> dict[str, Any]:
    """The error as JSON. ``hide`` is applied to each text: it hides secrets and paths."""
    if type(error).__name__ == "EvaluationError" and error.__cause__ is not None:
        error = error.__cause__
    problems: Sequence[Any] = getattr(error, "problems", ())
    return {
        "kind": type(error).__name__,
        "message": hide(message(error)),
        "where": "" if problems else where(error, tree),
        "problems": [
            # Revisions from before `shown` do not know which values are secrets.
            {"value": hide(getattr(problem, "shown", SECRET))}
            | {key: hide(getattr(problem, key)) for key in ("key", "reason", "fix")}
            for problem in problems
        ],
    }


def message(error: BaseException) -> str:
    """The error's text, after the name of its class unless that is one of the project's own."""
    ours = type(error).__module__.startswith(("slipway.", "workloads."))
    # Python's text of a syntax error repeats the place, which `where` tells.
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return text if ours else f"{type(error).__name__}: {text}"


def where(error: BaseException, tree: Path) -> str:
    """The innermost line of ``tree``'s code outside the engine (``slipway/infra/placed.py:1``); empty without."""
    chain = [error]
    while (below := chain[-1].__cause__ or chain[-1].__context__) is not None and below not in chain:
        chain.append(below)
    tree = tree.resolve()
    for link in reversed(chain):
        if (
            isinstance(link, SyntaxError)
            and link.filename
            and (file := Path(link.filename).resolve()).is_relative_to(tree)
        ):
            return f"{file.relative_to(tree)}:{link.lineno}"
        for frame in reversed(traceback.extract_tb(getattr(link, TRACEBACK, link.__traceback__))):
            file = Path(frame.filename).resolve()
            # Python names its own code `<frozen …>`, which is no file.
            if file.is_file() and file.is_relative_to(tree) and not _of_engine(path := file.relative_to(tree)):
                return f"{path}:{frame.lineno}"
    return ""


def _of_engine(path: Path) -> bool:
    """Whether the file is installed, or evaluates the program."""
    return path.parts[0] == ".venv" or path.parts[:2] == ("slipway", "engine")


if TYPE_CHECKING:
    import pulumi

KEY = "SLIPWAY_PREVIEW_KEY"
"""The environment variable with the key of the digests."""

OUT_OF_MEMORY = 98  # The exit code where a stack needs more memory: nothing can be relied on after that.

Remark = Callable[[str], object]
Evaluate = Callable[[str, Path, Secrets, Remark], dict[str, Any]]
"""Evaluates the stack of a name in a tree, and returns its `document`."""

Beside = Callable[[str, Path, Secrets], dict[str, Any]]
"""What else is printed of a stack, be it evaluated or not."""


def _nothing(_name: str, _tree: Path, _secrets: Secrets) -> dict[str, Any]:
    return {}


def run(evaluate: Evaluate, beside: Beside = _nothing) -> None:
    """Runs the command line and exits."""
    parser = argparse.ArgumentParser(description="Print what stacks of the tree in the working directory declare.")
    parser.add_argument("--stack", action="append", required=True, help="a stack; can be repeated")
    for limit, most in (("cpu", 60), ("time", 300), ("memory", 2 << 30)):
        parser.add_argument(f"--{limit}", type=int, default=most, help="seconds or bytes that a stack may take")
    options = parser.parse_args()
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # The process lives for seconds, and all that it makes is in use until it ends.
    gc.disable()
    hiding = Secrets(os.environ.pop(KEY, "").encode() or secrets.token_bytes())
    with contextlib.suppress(ValueError, OSError):  # A lower limit may be set already; macOS has none of memory.
        resource.setrlimit(resource.RLIMIT_AS, (options.memory, options.memory))

    def write(line: Mapping[str, Any]) -> None:
        text = json.dumps({"format": FORMAT, **line}, sort_keys=True, separators=(",", ":"))
        print(text, file=answer, flush=True)

    for name in options.stack:
        # The signals of these timers end the process.
        signal.setitimer(signal.ITIMER_PROF, options.cpu)
        signal.setitimer(signal.ITIMER_REAL, options.time)
        write({"begun": name})
        content = evaluate_or_fail(name, Path.cwd(), hiding, evaluate) | beside(name, Path.cwd(), hiding)
        write({"stack": name, "document": content})
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would first collect the garbage of the SDKs, which takes a third of the whole time.
    os._exit(0)


def evaluate_or_fail(name: str, tree: Path, hiding: Secrets, evaluate: Evaluate) -> dict[str, Any]:
    """What ``evaluate`` returns or, where it fails, why; with all that was logged meanwhile as ``remarks``."""
    logger = logging.getLogger()
    handler = _Remarks()
    logger.addHandler(handler)
    logging.captureWarnings(capture=True)

    def hide(text: str) -> str:
        return hiding.without_secrets(text).replace(f"{tree}{os.sep}", "").replace(str(tree), ".")

    try:
        watch(hiding)
        result = evaluate(name, tree, hiding, handler.remark)
    except (Exception, SystemExit) as error:
        if isinstance(error.__cause__ or error, MemoryError):
            os._exit(OUT_OF_MEMORY)
        result = {"failure": describe_error(error, tree, hide)}
    finally:
        logger.removeHandler(handler)
    return {**result, "remarks": [hide(remark) for remark in handler.remarks]}


class _Remarks(logging.Handler):
    """Keeps each logged text once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.remarks: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.remark(record.getMessage())

    def remark(self, text: str) -> None:
        self.remarks[text.strip()] = None


@cache
def watch(hiding: Secrets) -> None:
    """Hides each value that the program makes a secret, and keeps the traceback of an error in an `apply`.

    The error may be raised before a resource has the secret, and asyncio drops the traceback.
    """
    import pulumi  # noqa: PLC0415  # The process that starts this one has no use for Pulumi.

    output: Any = pulumi.Output
    make, apply = output.secret, output.apply

    def remembering(value: Any) -> "pulumi.Output[Any]":
        hiding.hide(value)
        return make(value)

    def locating(self: Any, func: Callable[[Any], Any], *more: Any, **options: Any) -> "pulumi.Output[Any]":
        def located(value: Any) -> Any:
            try:
                return func(value)
            except Exception as error:
                setattr(error, TRACEBACK, error.__traceback__)
                raise

        return apply(self, located, *more, **options)

    for name, replaced in (("secret", staticmethod(remembering)), ("apply", locating)):
        setattr(output, name, replaced)


class Program:
    """A program that is called with no arguments, and remembers the order in which it declared its resources.

    Pulumi registers them in another order, which is not always the same.
    """

    def __init__(self, declare: Callable[[], object]) -> None:
        self._declare = declare
        self._numbers: dict[tuple[str, str], int] = {}

    def __call__(self) -> None:
        import pulumi  # noqa: PLC0415

        pulumi.runtime.register_stack_transformation(self._note)
        self._declare()

    def _note(self, args: "pulumi.ResourceTransformationArgs") -> None:
        self._numbers.setdefault((args.type_, args.name), len(self._numbers))

    def number(self, resource: Any) -> tuple[int, str]:
        """What to sort resources by."""
        return self._numbers.get((resource.type, resource.name), len(self._numbers)), resource.urn


def with_stand_ins(values: Mapping[str, Any], emulators: Sequence[Any], remark: Remark) -> dict[str, Any]:
    """A stack's configuration with the emulators' values for the providers' keys that it does not set."""
    whole = dict(values)
    for key, value in (item for emulator in emulators for item in emulator.configuration.items()):
        if not whole.get(key):
            whole[key] = value
            remark(f"{key} is not set; {value!r} stands in")
    return whole


def document(
    evaluation: Any, program: Program, emulators: Sequence[Any], configuration: Any, encoder: Encoder
) -> dict[str, Any]:
    """What is printed of a stack that could be evaluated; ``configuration`` is encoded already."""
    ordered = sorted(evaluation.resources.values(), key=program.number)
    return {
        **declaration(ordered, emulators, encoder),
        "outputs": outputs(evaluation.outputs),
        "steps": [asdict(step) for step in evaluation.steps],
        "configuration": configuration,
    }


def declaration(resources: Sequence[Any], emulators: Sequence[Any], encoder: Encoder) -> dict[str, Any]:
    """The resources of a stack, and the nodes that are there before it."""
    return {
        "resources": [encoder.resource(entry) for entry in resources],
        "standing": [node(standing_node) for emulator in emulators for standing_node in emulator.standing_nodes()],
    }
