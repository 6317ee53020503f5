"""Service accounts: which pods get a token, in which files, and what it allows."""

import secrets
from dataclasses import dataclass
from pathlib import Path

from infra.review.properties import Properties, mapping, mappings, texts
from offline.rehearsal.cluster_objects import Namespace
from offline.rehearsal.pods import PodSpec

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds the token of its service account, and the files that go with it."""

API = "https://kubernetes.default.svc"
"""The address of the Kubernetes API inside a cluster; on this machine it is another."""


@dataclass(frozen=True)
class Token:
    """The token of a pod, and the service account that it stands for."""

    secret: str
    namespace: str
    account: str

    @property
    def user(self) -> str:
        """The user name that the token stands for."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"


def mounts_token(pod: PodSpec, namespace: Namespace) -> bool:
    """Whether the kubelet gives ``pod`` its service account's token: what the pod says comes first."""
    if pod.automounts_token is not None:
        return pod.automounts_token
    account = namespace.find("ServiceAccount", pod.service_account)
    return account is None or account.inputs.get("automountServiceAccountToken") is not False


def mount(pod: PodSpec, namespace: Namespace, folder: Path) -> Token:
    """Makes the files below the pod's ``folder``. There is no certificate: the API here is plain HTTP."""
    token = Token(secrets.token_hex(), namespace.name, pod.service_account)
    place = folder_of(folder)
    place.mkdir(parents=True)
    (place / "token").write_text(token.secret, encoding="utf-8")
    (place / "namespace").write_text(namespace.name, encoding="utf-8")
    return token


def folder_of(folder: Path) -> Path:
    """Where the files lie for the pod whose folder is ``folder``."""
    return folder / "kube-api-access"


def may_list_nodes(token: Token, namespace: Namespace) -> bool:
    """Whether a ClusterRoleBinding of the cluster lets the token's service account list nodes."""
    found = namespace.objects
    for _, binding in found.all_of(namespace.cluster, "ClusterRoleBinding", ""):
        reference = mapping(binding.inputs.get("roleRef"))
        role = found.find(namespace.cluster, "ClusterRole", "", str(reference.get("name")))
        subjects = mappings(binding.inputs.get("subjects"))
        if role is not None and any(_is(token, each) for each in subjects):
            rules = mappings(role.inputs.get("rules"))
            if any(
                "nodes" in texts(rule.get("resources")) and "list" in texts(rule.get("verbs")) for rule in rules
            ):
                return True
    return False


def _is(token: Token, subject: Properties) -> bool:
    return (subject.get("kind"), subject.get("namespace"), subject.get("name")) == (
        "ServiceAccount",
        token.namespace,
        token.account,
    )
