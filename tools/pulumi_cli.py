"""What the Pulumi CLI knows of a stack: its outputs, and what is in its state, also while an update runs."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.review.stack import JOB, Properties, mapping, mappings, text

ROOT = Path(__file__).resolve().parents[1]

ANSWER_WITHIN = 60
"""Seconds that the CLI may take: a state backend that does not answer must not hold up a watch for ever."""

SECRET = "4dabf18193072939515e22adb298388d"
"""The key that marks a value in the state as something else than a mapping: a secret has ``plaintext`` beside it
(pulumi/pulumi, sdk/go/common/resource/sig, seen November 2026)."""


class CliError(Exception):
    """The CLI is not there, or refuses. The text says why, and what to do about it."""


def outputs_of(stack: str) -> Mapping[str, Any]:
    """The outputs of the stack's last `pulumi up`; empty where it has none. Raises CliError."""
    return mapping(_asked(["stack", "output", "--json"], stack))


def resources_of(stack: str) -> list[Properties]:
    """The resources in the stack's state, their secrets in clear. Raises CliError.

    While an update runs, those that it has made so far are among them.
    """
    found = mapping(_asked(["stack", "export", "--show-secrets"], stack))
    return mappings(mapping(found.get("deployment")).get("resources"))


def unfinished_jobs(stack: str) -> set[tuple[str, str, str]]:
    """The Jobs in the stack's state that no `up` has seen succeed: cluster, namespace and name. Raises CliError.

    Such a Job has errors of its creation in the state. Pulumi then reads it from the cluster in every preview and
    `up`, and fails where it is not there (seen with the CLI 3.260 and the Kubernetes provider 4.32).
    """
    found: set[tuple[str, str, str]] = set()
    for resource in mappings(
        mapping(mapping(_asked(["stack", "export"], stack)).get("deployment")).get("resources")
    ):
        if resource.get("type") == JOB and resource.get("initErrors") and not resource.get("delete"):
            namespace, _, name = text(resource.get("id")).rpartition("/")
            # A provider is referred to by its URN, whose end is its name, and its ID.
            found.add((text(resource.get("provider")).split("::")[-2:][0], namespace or "default", name))
    return found


def decrypt(value: object) -> Any:
    """A value of the state, of which a secret is the text that it hides."""
    found = mapping(value)
    if SECRET in found and isinstance(found.get("plaintext"), str):
        return json.loads(found["plaintext"])
    return value


def _asked(words: Sequence[str], stack: str) -> Any:
    if shutil.which("pulumi") is None:
        raise CliError(
            "the Pulumi CLI is not on PATH, and the stack's outputs are in its state: "
            "https://www.pulumi.com/docs/install"
        )
    command = ["pulumi", *words, "--stack", stack, "--non-interactive"]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=ANSWER_WITHIN
        )
    except subprocess.TimeoutExpired as error:
        raise CliError(f"{shlex.join(command)} gave no answer within {ANSWER_WITHIN} s") from error
    if done.returncode:
        raise CliError(f"{shlex.join(command)}: {done.stderr.strip().removeprefix('error: ')}")
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise CliError(f"{shlex.join(command)} did not print JSON: {error}") from error
