"""What the Pulumi CLI knows of a stack: its outputs, and what is in its state, also while an update runs."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from slipway.infra.places import PROJECT
from slipway.infra.review.stack import JOB, KUBERNETES_PROVIDER, Properties, mapping, mappings, text
from slipway.infra.review.state import SIGNATURE

ANSWER_WITHIN = 60
"""Seconds that the CLI may take: a state backend that does not answer must not hold up a watch for ever."""


TAKES_AWAY = frozenset({"destroy", "down", "dn", "refresh"})
"""Verbs of the CLI, with their aliases, that run a program with `--run-program`, and start nothing."""

DESTROYS = TAKES_AWAY - {"refresh"}

BRINGS_UP = frozenset({"up", "update", "preview", "pre", "watch"})
"""Those that declare what the program says."""


class CliError(Exception):
    """The CLI is not there, or refuses. The text says why, and what to do about it."""


def run(*words: str) -> str:
    """What a command of the CLI prints that changes nothing. Raises CliError with the CLI's own words."""
    try:
        done = subprocess.run(
            ["pulumi", *words, "--non-interactive", "--color", "never"],
            check=False,
            capture_output=True,
            text=True,
            cwd=PROJECT,
            env={**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"},
            timeout=ANSWER_WITHIN,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise CliError(f"no answer within {ANSWER_WITHIN} s") from error
    except OSError as error:
        raise CliError(f"it cannot be started: {error.strerror}") from error
    if done.returncode:
        raise CliError(" ".join(done.stderr.split()).removeprefix("error: ") or f"exit code {done.returncode}")
    return done.stdout


def starts_nothing(verbs: Set[str] = TAKES_AWAY) -> bool:
    """Whether the CLI runs this program by one of ``verbs``, to destroy or refresh the stack.

    The engine does not tell the program (`RunRequest` in sdk/proto/pulumi/language.proto of
    github.com/pulumi/pulumi, 3.260), so the command line of the CLI that started it is read. Not known, and so
    False, in a program of the Automation API that runs in its caller.
    """
    with suppress(psutil.Error):
        for parent in psutil.Process().parents():
            words = _command_line(parent)
            if words and Path(words[0]).stem == "pulumi":
                return not verbs.isdisjoint(words) and BRINGS_UP.isdisjoint(words)
    return False


def _command_line(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def outputs_of(stack: str) -> Mapping[str, Any]:
    """The outputs of the stack's last `pulumi up`; empty where it has none. Raises CliError."""
    return _ask(stack, "output", "--json")


def deployment_of(stack: str) -> Properties:
    """The stack's state, its secrets in clear. Raises CliError."""
    return mapping(_ask(stack, "export", "--show-secrets").get("deployment"))


def resources_of(stack: str) -> list[Properties]:
    """The resources in the stack's state, their secrets in clear. Raises CliError.

    While an update runs, those that it has made so far are among them.
    """
    return mappings(deployment_of(stack).get("resources"))


def being_created(deployment: Properties) -> list[Properties]:
    """The resources that a killed update was creating: they may be there, and the state lacks them."""
    operations = mappings(deployment.get("pending_operations"))
    return [mapping(operation.get("resource")) for operation in operations if operation.get("type") == "creating"]


def kubeconfig_of(resources: Sequence[Properties], cluster: str) -> tuple[str, str | None]:
    """The kubeconfig that the state has of a cluster, and its context; empty where it has none.

    ``resources`` are as `resources_of` returns them.
    """
    for resource in resources:
        if resource.get("type") != KUBERNETES_PROVIDER or resource.get("delete"):
            continue
        if text(resource.get("urn")).rpartition("::")[2] == cluster:
            inputs = mapping(resource.get("inputs"))
            if kubeconfig := text(decrypt(inputs.get("kubeconfig"))):
                return kubeconfig, text(decrypt(inputs.get("context"))) or None
    return "", None


def unfinished_jobs(stack: str) -> set[tuple[str, str, str]]:
    """The Jobs in the stack's state that no `up` has seen succeed: cluster, namespace and name. Raises CliError.

    Such a Job has errors of its creation in the state. Pulumi then reads it from the cluster in every preview and
    `up`, and fails where it is not there (seen with the CLI 3.260 and the Kubernetes provider 4.32).
    """
    return {job for job, unfinished in jobs_of(stack).items() if unfinished}


def jobs_of(stack: str) -> dict[tuple[str, str, str], bool]:
    """The Jobs in the stack's state, as `unfinished_jobs` has them, and whether they are such. Raises CliError."""
    jobs: dict[tuple[str, str, str], bool] = {}
    for resource in mappings(mapping(_ask(stack, "export").get("deployment")).get("resources")):
        if resource.get("type") == JOB and not resource.get("delete"):
            namespace, _, name = text(resource.get("id")).rpartition("/")
            jobs[provider_name(resource), namespace or "default", name] = bool(resource.get("initErrors"))
    return jobs


def provider_name(resource: Properties) -> str:
    """The name of a resource's provider, which is that of its cluster. It is referred to by its URN, whose end is
    its name, and its ID."""
    return text(resource.get("provider")).split("::")[-2:][0]


def decrypt(value: object) -> Any:
    """A value of the state, of which a secret is the text that it hides."""
    secret = mapping(value)
    if SIGNATURE in secret and isinstance(secret.get("plaintext"), str):
        return json.loads(secret["plaintext"])
    return value


def _ask(stack: str, *words: str) -> Properties:
    if shutil.which("pulumi") is None:
        raise CliError(
            "the Pulumi CLI is not on PATH, and the stack's outputs are in its state: "
            "https://www.pulumi.com/docs/install"
        )
    command = ["stack", *words, "--stack", stack]
    try:
        return mapping(json.loads(run(*command) or "{}"))
    except CliError as error:
        raise CliError(f"{shlex.join(['pulumi', *command])}: {error}") from error
    except ValueError as error:
        raise CliError(f"{shlex.join(['pulumi', *command])} did not print JSON: {error}") from error
