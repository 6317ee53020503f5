"""Evaluates the stacks of one tree of this repository in preview mode, and writes each down as a line of JSON.

Started by its path, with the tree to evaluate first on ``sys.path``: the tree may be an older revision, so this
file imports nothing of its own revision, and of the tree only what every revision has. The lines' format is
therefore this file's alone: ``{"begun": NAME}``, then ``{"stack": NAME, "document": …}``, which
`offline.preview.evaluated_stack` reads. Nothing else reaches stdout. A stack without its second line ended the
process.

    SLIPWAY_PREVIEW_KEY=… python offline/preview/worker.py --tree . --stack gcp-dev

Secrets are written as digests under the key, which all trees that are to be compared have to share.
"""

import argparse
import contextlib
import gc
import hashlib
import hmac
import json
import logging
import os
import resource
import secrets
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

KEY = "SLIPWAY_PREVIEW_KEY"
"""The environment variable that holds the key of the digests."""

MARK = "$slipway"
"""The key of the mappings that stand for what JSON has no word for."""

UNKNOWN = {MARK: "unknown"}
UNKNOWN_IN_JSON = ("<<unknown:", json.dumps(UNKNOWN)[1:-1])
"""How what only an update knows begins in a text (see `unknown_outputs`), and is written for a whole value."""

SECRET = "[secret]"
PROJECT = "slipway"
PREFIX = "slipway:"

PLAIN = ("urn", "name", "custom", "parent", "provider", "protect", "delete_before_replace", "read")
LISTS = ("ignore_changes", "replace_on_changes", "aliases")
SETS = ("dependencies", "replace_with")
"""What is written of a resource as it is."""

OUT_OF_MEMORY = 98  # Its exit code where a stack needs more: nothing can be relied on after that.

TRACE = "_slipway_traceback"
"""The attribute of an error that keeps its traceback."""

SHORTEST = 4  # Characters of a secret that is looked for in messages; any shorter one is part of many words.


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the document; fails only where not even that can be done."""
    parser = argparse.ArgumentParser(description="Evaluate stacks of a tree for the preview.")
    parser.add_argument("--tree", type=Path, required=True, help="a checkout of this repository")
    parser.add_argument("--stack", action="append", help="one of its stacks, all by default; can be repeated")
    for limit, most in (("cpu", 60), ("time", 300), ("memory", 2 << 30)):
        parser.add_argument(f"--{limit}", type=int, default=most, help="seconds or bytes that a stack may take")
    options = parser.parse_args(arguments)
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    tree = options.tree.resolve()
    os.chdir(tree)
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(tree), *(each for each in sys.path if Path(each or ".").resolve() not in (here, tree))]
    # A worker lives for seconds, and all that it makes is in use until it ends.
    gc.disable()
    secret = _Secrets(os.environ.pop(KEY, "").encode() or secrets.token_bytes())
    with contextlib.suppress(ValueError, OSError):  # There may be a lower limit; macOS has none of memory.
        resource.setrlimit(resource.RLIMIT_AS, (options.memory, options.memory))
    with answer:
        for name in options.stack or stacks_of(tree):
            # The signals of these timers end the process.
            signal.setitimer(signal.ITIMER_PROF, options.cpu)
            signal.setitimer(signal.ITIMER_REAL, options.time)
            print(json.dumps({"begun": name}), file=answer, flush=True)
            found = {"stack": name, "document": _stack(name, tree, secret)}
            print(json.dumps(found, sort_keys=True, separators=(",", ":")), file=answer, flush=True)
    return 0


def stacks_of(tree: Path) -> list[str]:
    """The names of the stacks that have a file in ``tree``."""
    return sorted(
        path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in (tree / "stacks").glob("Pulumi.*.yaml")
    )


class _Secrets:
    """Digests under one key, and the texts that no message may show."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._texts: set[str] = set()
        self._public: set[str] = set()

    def digest(self, value: Any) -> dict[str, Any]:
        """What stands for a secret; ``value`` is made of what JSON knows."""
        text = json.dumps(value, sort_keys=True)
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()[:32]
        partial = {"partial": True} if any(each in text for each in UNKNOWN_IN_JSON) else {}
        return {MARK: "secret", "digest": digest, **partial}

    def remember(self, value: Any, shown: Any) -> None:
        """All texts of ``value`` that ``shown`` hides."""
        if shown == SECRET:
            self.hide(value)
        for key, each in _items(shown):
            self.remember(value[key], each)

    def hide(self, value: Any) -> None:
        """All texts of ``value``, which is a secret."""
        self._texts.update(text for text in _texts(value) if len(text) >= SHORTEST)

    def publish(self, value: Any) -> None:
        """Texts that stand in clear in a stack file, such as a kubeconfig's path, are no secrets."""
        self._public.update(_texts(value))

    def hidden(self, text: str) -> str:
        """``text`` without the secrets."""
        for each in sorted(self._texts - self._public, key=len, reverse=True):
            text = text.replace(each, SECRET)
        return text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for _, each in _items(value):
        yield from _texts(each)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """What is in a mapping or a list; nothing for all else."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).items()
    return enumerate(cast("list[Any]", value)) if isinstance(value, list) else ()


def _stack(name: str, tree: Path, secret: _Secrets) -> dict[str, Any]:
    """One stack's part of the document: what it declares, or why that cannot be told."""
    logger = logging.getLogger()
    handler = _Remarks()
    logger.addHandler(handler)
    logging.captureWarnings(capture=True)

    def shown(text: str) -> str:
        return secret.hidden(text).replace(f"{tree}{os.sep}", "").replace(str(tree), ".")

    try:
        found = _evaluated(name, tree, secret, handler.remark)
    except (Exception, SystemExit) as error:
        if isinstance(error.__cause__ or error, MemoryError):
            os._exit(OUT_OF_MEMORY)
        found = {"failure": _failure(error, tree, shown)}
    finally:
        logger.removeHandler(handler)
    return {**found, "remarks": [shown(each) for each in handler.remarks]}


class _Remarks(logging.Handler):
    """Keeps what is logged, each text once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.remarks: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.remark(record.getMessage())

    def remark(self, text: str) -> None:
        self.remarks[text.strip()] = None


def _failure(error: BaseException, tree: Path, shown: Callable[[str], str]) -> dict[str, Any]:
    if type(error).__name__ == "EvaluationError" and error.__cause__ is not None:
        error = error.__cause__
    problems: Sequence[Any] = getattr(error, "problems", ())
    return {
        "kind": type(error).__name__,
        "message": shown(told(error)),
        "where": "" if problems else where(error, tree),
        "problems": [
            # Revisions from before `shown` do not know which values are secrets.
            {"value": shown(getattr(each, "shown", SECRET))}
            | {key: shown(getattr(each, key)) for key in ("key", "reason", "fix")}
            for each in problems
        ],
    }


def told(error: BaseException) -> str:
    """Its message, and its kind where it is none of the project's own."""
    kind = (
        ""
        if type(error).__module__.startswith(("infra.", "offline.", "workloads."))
        else f"{type(error).__name__}: "
    )
    # Python's own words for an error of syntax repeat the place, which `where` tells.
    return kind + (error.msg if isinstance(error, SyntaxError) else str(error))


def where(error: BaseException, tree: Path) -> str:
    """The innermost line of the tree's own code, past the engine that evaluates it; empty where there is none."""
    chain = [error]
    while (below := chain[-1].__cause__ or chain[-1].__context__) is not None and below not in chain:
        chain.append(below)
    engine = tree / "offline"
    for each in reversed(chain):
        if isinstance(each, SyntaxError) and each.filename and Path(each.filename).is_relative_to(tree):
            return f"{Path(each.filename).relative_to(tree)}:{each.lineno}"
        for frame in reversed(traceback.extract_tb(getattr(each, TRACE, each.__traceback__))):
            path = Path(frame.filename)
            ours = path.is_relative_to(tree) and ".venv" not in path.parts and path != Path(__file__)
            if ours and not path.is_relative_to(engine):
                return f"{path.relative_to(tree)}:{frame.lineno}"
    return ""


def _evaluated(name: str, tree: Path, secret: _Secrets, remark: Callable[[str], object]) -> dict[str, Any]:
    import pulumi  # noqa: PLC0415

    from infra.program import declare, shipping_problems  # noqa: PLC0415
    from infra.schema.problems import SettingsError  # noqa: PLC0415
    from infra.settings.loading import load  # noqa: PLC0415
    from offline.engine.emulators import emulators  # noqa: PLC0415
    from offline.engine.evaluate import evaluate  # noqa: PLC0415
    from offline.engine.monitor import Observer  # noqa: PLC0415
    from offline.engine.stack_config import load_stack, read_yaml  # noqa: PLC0415

    _answer_as_in_a_preview()
    _watch(secret)
    config = load_stack(name, tree)
    secret.publish(config.values)
    values = dict(config.values)
    raw = {key.removeprefix(PREFIX): value for key, value in values.items() if key.startswith(PREFIX)}
    try:
        settings = load(raw)
    except SettingsError as error:
        raise SettingsError([*error.problems, *shipping_problems(raw, tree)]) from None
    stand_ins = emulators(settings)
    for key, stand_in in (item for each in stand_ins for item in each.configuration.items()):
        if not values.get(key):
            values[key] = stand_in
            remark(f"{key} is not set; {stand_in!r} stands in")
    if config.secrets:
        remark(f"secrets that only their passphrase opens have a placeholder: {', '.join(config.secrets)}")
    declared: dict[tuple[str, str], int] = {}

    def note(args: pulumi.ResourceTransformationArgs) -> None:
        declared.setdefault((args.type_, args.name), len(declared))

    def program() -> None:
        pulumi.runtime.register_stack_transformation(note)
        declare()

    class Listening(Observer):
        def registering(self, resource: Any) -> None:
            secret.remember(resource.inputs, resource.shown_inputs)

    options: dict[str, Any] = {"emulators": stand_ins, "observer": Listening(), "preview": True}
    evaluation = evaluate(program, project=PROJECT, stack=name, config=values, **options)
    # Registrations arrive in an order that is Pulumi's, and not always the same.
    order = sorted(
        evaluation.resources.values(),
        key=lambda each: (declared.get((each.token, each.name), len(declared)), each.urn),
    )
    encode = _Encoder(secret, tree).encode
    standing = [each for emulator in stand_ins for each in emulator.standing_nodes()]
    return {
        "resources": [_resource(each, encode) for each in order],
        "outputs": {name: each.secret for name, each in evaluation.outputs.items()},
        "configuration": _configuration(config.values, read_yaml(config.file).get("config"), secret),
        "standing": [asdict(replace(each, labels=dict(each.labels))) for each in standing],
    }


@cache
def _watch(secret: _Secrets) -> None:
    """Learns of the program what it calls secret, and where it was when an `apply` failed.

    An error may come before any resource has the secret, and asyncio forgets where it came from.
    """
    import pulumi  # noqa: PLC0415

    output: Any = pulumi.Output
    make, apply = output.secret, output.apply

    def remembering(value: Any) -> "pulumi.Output[Any]":
        secret.hide(value)
        return make(value)

    def locating(self: Any, func: Callable[[Any], Any], *more: Any, **options: Any) -> "pulumi.Output[Any]":
        def located(value: Any) -> Any:
            try:
                return func(value)
            except Exception as error:
                setattr(error, TRACE, error.__traceback__)
                raise

        return apply(self, located, *more, **options)

    for name, replaced in (("secret", staticmethod(remembering)), ("apply", locating)):
        setattr(output, name, replaced)


def _answer_as_in_a_preview() -> None:
    """Gives trees from before previews an engine that leaves unknown what only an update knows."""
    from pulumi.runtime.proto import resource_pb2  # noqa: PLC0415

    from offline.engine import evaluate, monitor  # noqa: PLC0415

    if hasattr(monitor.Cloud, "foreseen"):
        return

    class Previewing(monitor.Monitor):
        def _answer(self, request: Any, resource: Any, *, lost: bool) -> Any:  # noqa: ARG002
            return resource_pb2.RegisterResourceResponse(urn=resource.urn, object=request.object)

    setattr(evaluate, "Monitor", Previewing)  # noqa: B010  # Two modules' classes, which no type checker compares.


def _resource(resource: Any, encode: Callable[[Any, Any], Any]) -> dict[str, Any]:
    return {
        **{key: getattr(resource, key) for key in PLAIN},
        **{key: list(getattr(resource, key)) for key in LISTS},
        **{key: sorted(getattr(resource, key)) for key in SETS},
        # Unknown to trees from before November 2026.
        "retain_on_delete": getattr(resource, "retain_on_delete", False),
        "type": resource.token,
        "properties": encode(resource.inputs, resource.shown_inputs),
        "property_dependencies": {key: sorted(urns) for key, urns in resource.property_dependencies.items()},
    }


class _Encoder:
    """From inputs, beside which there are the same with secrets hidden, to what JSON knows."""

    def __init__(self, secret: _Secrets, tree: Path) -> None:
        from pulumi.output import Unknown  # noqa: PLC0415

        self._unknown = Unknown
        self._secret = secret
        self._tree = str(tree)

    def encode(self, value: Any, shown: Any) -> Any:
        if isinstance(value, self._unknown):
            name: str | None = getattr(value, "name", None)
            return UNKNOWN if name is None else {**UNKNOWN, "of": name}
        if shown == SECRET:
            return self._secret.digest(SECRET if value == SECRET else self.encode(value, value))
        if isinstance(value, Mapping):
            mapping = cast("Mapping[str, Any]", value)
            made = {str(key): self.encode(each, shown[key]) for key, each in mapping.items()}
            return {MARK: "mapping", "value": made} if MARK in made else made
        if isinstance(value, list):
            return [self.encode(each, shown[index]) for index, each in enumerate(cast("list[Any]", value))]
        return self._single(value)

    def _single(self, value: Any) -> Any:
        if isinstance(value, str):
            # The trees that are compared lie in different folders.
            return value.replace(self._tree, ".")
        if value is None or isinstance(value, bool | int | float):
            return value
        asset = next((getattr(value, key) for key in ("path", "text", "uri") if hasattr(value, key)), "")
        return f"{type(value).__name__}({asset})"


def _configuration(values: Any, written: Any, secret: _Secrets) -> Any:
    """``values`` with digests of what stands encrypted in the file, which has ``written``."""
    if isinstance(values, Mapping):
        below = cast("Mapping[Any, Any]", written if isinstance(written, Mapping) else {})
        mapping = cast("Mapping[Any, Any]", values)
        return {str(key): _configuration(each, below.get(key), secret) for key, each in mapping.items()}
    if isinstance(values, list):
        items = cast("list[Any]", values)
        beside = cast("list[Any]", written) if isinstance(written, list) else [None] * len(items)
        return [_configuration(each, beside[index], secret) for index, each in enumerate(items)]
    return secret.digest(written["secure"]) if isinstance(written, Mapping) else values


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # An orderly end would look for garbage among all that the SDKs made, which takes a third of the whole time.
    os._exit(code)
