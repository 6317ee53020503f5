"""What to do where a program was kept from a file: by SELinux, or since its pod may write to its volumes alone."""

import re

from slipway.infra.commands import page
from slipway.infra.review.refused_writes import (
    KEYS,
    command_of_denials,
    labels_of_files,
    places_of_writes,
    refused_path,
)
from slipway.infra.review.stack import Properties, at, mapping, mappings, text

DENIED = re.compile(r"[Pp]ermission denied|\bEACCES\b|\[Errno 13\]")

DEVICES = "/dev/nvidia"


def fix_of_denial(pod: Properties, container: str, words: str) -> str:
    """How to find out whether SELinux refused the path that ``words`` name.

    Empty where they do not say that a volume of the container was refused, or where its pod has no SELinux level:
    OpenShift gives it to each pod, of the range of its namespace (docs.redhat.com, OpenShift 4, "Managing security
    context constraints").
    """
    level = text(at(pod, "spec", "securityContext", "seLinuxOptions", "level"))
    if not level or not DENIED.search(words):
        return ""
    specs = mappings(at(pod, "spec", "containers"))
    spec = next((spec for spec in specs if spec.get("name") == container), mapping(None))
    folders = [text(mount.get("mountPath")) for mount in mappings(spec.get("volumeMounts"))]
    path = next((folder for folder in [*folders, DEVICES] if folder and _names(words, folder)), "")
    if not path:
        return ""
    node = text(at(pod, "spec", "nodeName")) or "NODE"
    return (
        f"where the mode of {path} allows it, SELinux does not: its files need {labels_of_files(level)}. "
        f"`{command_of_denials(node)}` shows what was refused ({page('openshift.md')})"
    )


def fix_of_refused_write(pod: Properties, container: str, words: str) -> str:
    """Where the container may write, and the keys of a step that change that, once ``words`` say it was refused.

    Empty where they name no path, or one below a volume that it may write to, which refused it itself. A relative
    path may be below such a volume, too, unless its file system is read-only.
    """
    specs = mappings(at(pod, "spec", "containers"))
    spec = next((spec for spec in specs if spec.get("name") == container), mapping(None))
    if at(spec, "securityContext", "readOnlyRootFilesystem") is not True:
        return ""
    mounts = mappings(spec.get("volumeMounts"))
    writable = [text(mount.get("mountPath")) for mount in mounts if mount.get("readOnly") is not True]
    refused, path = refused_path(words.splitlines())
    relative = not path.startswith("/") and DENIED.search(words)
    if not refused or not path or relative or any(_names(path, folder) for folder in writable):
        return ""
    return f"{places_of_writes(writable)}, and {path} is in none of them. {KEYS} ({page('steps.md')})"


def _names(words: str, folder: str) -> bool:
    """Whether ``words`` name a path at or below ``folder``; of devices, those that begin so."""
    end = "" if folder == DEVICES else r"(?=$|[/\s'\":;,)])"
    return re.search(rf"(?<![\w./-]){re.escape(folder.rstrip('/'))}{end}", words) is not None
