"""The program of a container: its words and its environment, as Kubernetes gives them to it."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipway.features.importing.manifest import Findings, Object, Place, Role, Training, pattern
from slipway.infra.review.stack import items, mapping, mappings
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, spell
from slipway.infra.schema.secret_values import looks_like, secret

RANK, ADDRESS, POD = "\0RANK\0", "\0MASTER_ADDR\0", "\0POD_NAME\0"
LATER = re.compile("\0(?P<name>[A-Za-z_]\\w*)\0")
"""What only the pod knows: the variable that it has there, between characters that no value has."""


@dataclass
class Pod:
    """What a role's pods are. ``exports`` are variables that the `environment` of a step cannot have: of what only
    the pod knows, or with other values than the step sets. Those to ``unset`` it sets, and the manifest does not.
    """

    words: list[str] = field(default_factory=list[str])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    exports: dict[str, str] = field(default_factory=dict[str, str])
    unset: list[str] = field(default_factory=list[str])
    image: str = ""
    resources: dict[str, Any] = field(default_factory=dict[str, Any])
    mounts: dict[str, Any] = field(default_factory=dict[str, Any])
    starts_in: str = ""
    port: int = 0


def expand(text: str, table: Mapping[str, str]) -> str:
    """``text`` with the values of ``table`` in place of ``$(NAME)``, as Kubernetes has it."""
    known = {None: "$", **table}
    return pattern("reference").sub(lambda part: known.get(part["name"], part[0]), text)


def quoted(value: str) -> str:
    """``value`` as a shell reads it, which fills in what only the pod knows."""
    if not LATER.search(value):
        return shlex.quote(value)
    return '"' + LATER.sub(r"${\g<name>}", re.sub(r'([\\"`$])', r"\\\1", value)) + '"'


class Reader:
    """Reads a container as the kubelet does (pkg/kubelet/kubelet_pods.go, Kubernetes 1.37): variables in order."""

    def __init__(self, training: Training, role: Role, container: Place, pod: Pod, findings: Findings) -> None:
        self.source, self.container, self.pod, self.findings = role.source, container, pod, findings
        self.beside, self.several = training.beside, training.count > 1
        self._table: dict[str, str] = {}
        # Pods of a Job have names in the domain of their Service, those of roles have a Service each.
        first = training.objects[0]
        domain = role.source.look(*role.spec, "subdomain") or first.look("spec", "network", "subdomain")
        domain = str(domain or first.name)
        end = rf"{re.escape(f'.{domain}') if training.job else ''}(?:\.[\w-]+)*(?![\w-])"
        hosts = "|".join(re.escape(role.host) for role in training.roles)
        self._first_host = re.compile(rf"(?<![\w.-]){re.escape(training.roles[0].host)}0{end}")
        self._host = re.compile(rf"(?<![\w.-])(?:{hosts})\d+{end}" if self.several else "(?!)")
        texts = " ".join(_texts([item.content for item in training.objects]))
        self._open = {part["braces"] or part["plain"] for part in pattern("open").finditer(texts)} - {None}

    def read(self, told: Mapping[str, str]) -> None:
        """Fills words, environment and secrets of the pod. Its words may name what its controller ``told`` it."""
        place = self.container
        for index, source in enumerate(mappings(self.source.look(*place, "envFrom"))):
            self._read_source((*place, "envFrom", index), source)
        for index, _ in enumerate(items(self.source.look(*place, "env"))):
            self._read_variable((*place, "env", index))
        self._table |= told
        if not items(self.source.look(*place, "command")):
            self.findings.add("entrypoint", (*place, "command"), None, image=self.source.look(*place, "image"))
        before: list[str] = []
        for key in ("command", "args"):
            for index, word in enumerate(items(self.source.take(*place, key))):
                self.pod.words.append(self._read_word((*place, key, index), word, before))
                before.append(str(word))

    def _read_variable(self, place: Place) -> None:
        name, value = str(self.source.take(*place, "name")), self.source.take(*place, "value")
        source = mapping(self.source.take(*place, "valueFrom"))
        path = str(mapping(source.get("fieldRef")).get("fieldPath"))
        if value or not source:
            value = "" if value is None else value
            if self._is_filled(place, value):
                self._set(place, name, expand(value, self._table))
        elif reference := mapping(source.get("secretKeyRef")):
            self._set_secret(name, f"{reference.get('name')}-{reference.get('key')}", "of a Secret")
        elif reference := mapping(source.get("configMapKeyRef")):
            for value in self._data("ConfigMap", place, reference, str(reference.get("key"))).values():
                self._set(place, name, value)
        elif "job-completion-index" in path:
            self._set(place, name, RANK if self.several else "0")
        elif path == "metadata.name":
            self._set(place, name, POD)
        else:
            self.findings.add("field-of-pod", place, name)

    def _read_source(self, place: Place, source: Mapping[str, Any]) -> None:
        """All values of a ConfigMap or a Secret as variables."""
        self.source.take(*place)
        config, secrets = mapping(source.get("configMapRef")), mapping(source.get("secretRef"))
        for key, value in self._data("ConfigMap" if config else "Secret", place, config or secrets).items():
            name = f"{source.get('prefix') or ''}{key}"
            if secrets:
                self._set_secret(name, f"{secrets['name']}-{key}", "of a Secret")
            else:
                self._set(place, name, value)

    def _data(self, kind: str, place: Place, reference: Mapping[str, Any], *keys: str) -> Mapping[str, str]:
        """What a ConfigMap or Secret of the same file has, or what it has under ``keys``."""
        data = data_of(self.beside, kind, str(reference.get("name")))
        if data is not None and data.keys() >= set(keys):
            return {key: data[key] for key in keys or data}
        name = "lost.optional" if reference.get("optional") else "not-in-file"
        self.findings.add(name, place, f"{kind} {reference.get('name')}")
        return {}

    def _set(self, place: Place, name: str, value: str) -> None:
        """A variable with its value; one that is a secret becomes a reference to one."""
        if not LATER.search(value) and (what := secret(name, value)):
            self.findings.secrets.add(value)
            self._set_secret(name, name.replace("_", "-"), f"in clear in the manifest ({what})")
            return
        value = self._first_host.sub(ADDRESS if self.several else "localhost", value)
        if host := self._host.search(value):
            self.findings.add("host", place, host[0])
        self._keep(name, value)
        (self.pod.exports if LATER.search(value) else self.pod.environment)[name] = value

    def _set_secret(self, name: str, called: str, where: str) -> None:
        self._keep(name, f"\0{name}\0")
        self.pod.secrets[name] = spell(KUBERNETES_NAME_LIMIT, called)
        self.findings.add("needs.secret", name=name, where=where, secret=self.pod.secrets[name])

    def _keep(self, name: str, value: str) -> None:
        """The last value of a name counts."""
        for values in (self.pod.environment, self.pod.exports, self.pod.secrets):
            values.pop(name, None)
        self._table[name] = value

    def _read_word(self, place: Place, word: Any, before: Sequence[str]) -> str:
        """A word with its references filled in."""
        filled = expand(str(word), self._table)
        if self._is_filled(place, word, is_read=any(map(pattern("reader").fullmatch, before))):
            self._require_no_secret(place, word, before[-1] if before else "")
            if host := self._host.search(filled) or (self.several and pattern("host-part").search(word)) or None:
                self.findings.add("host", place, host[0])
        return filled

    def _is_filled(self, place: Place, text: Any, *, is_read: bool = False) -> bool:
        """Whether it is a text, and nothing in it is open that its program, or a shell, may take as it is."""
        if not isinstance(text, str) or pattern("template").search(text):
            self.findings.add("template" if isinstance(text, str) else "no-text", place, text)
            return False
        for part in pattern("open").finditer(text):
            name = part["braces"] or part["plain"]
            of_service = (part["name"] or "").endswith(("_SERVICE_HOST", "_SERVICE_PORT"))
            if (name in self._open or of_service) if is_read else part["name"] not in self._table:
                self.findings.add("open-variable", place, text, open=part["open"])
                return False
        return True

    def _require_no_secret(self, place: Place, word: str, before: str) -> None:
        """Refuses a secret among the words, and shows none."""
        assigned = pattern("assigned").finditer(word)
        values = {part["value"]: secret(part["name"] or part["option"], part["value"]) for part in assigned}
        option = before.lstrip("-") if before.startswith("-") and "=" not in before else ""
        values[word] = looks_like(word) or (secret(option, word) if option else None)
        for value, what in values.items():
            if what:
                self.findings.secrets.add(value)
                self.findings.add("secret", place, what=what)


def _texts(value: object) -> Iterator[str]:
    """The texts of an object but for its programs: names, paths, amounts."""
    inside = [element for key, element in mapping(value).items() if key not in {"command", "args", "env"}]
    for element in [*inside, *items(value)]:
        yield from [element] if isinstance(element, str) else _texts(element)


def data_of(beside: Sequence[Object], kind: str, name: str) -> Mapping[str, str] | None:
    """What the ConfigMap or Secret ``name`` has, but for binary data; None where it is not there."""
    for item in beside:
        if (item.kind, item.name) == (f"{kind} of v1", name) and not item.look("binaryData"):
            values = {**mapping(item.take("data")), **mapping(item.take("stringData"))}
            return {str(key): str(value) for key, value in values.items()}
    return None


def say_needs(pod: Pod, training: Training, code: str, findings: Findings) -> None:
    """Says which hosts a step does not reach, and which launchers it lacks. ``code`` is the text of its files."""
    texts = [*pod.words, *pod.environment.values()]
    services = [item for item in training.beside if item.kind == "Service of v1"]
    hosts = {item.name: "" for item in services if item.look("spec", "clusterIP") != "None"}
    hosts |= {part["host"]: "" for part in pattern("code-host").finditer(code)}
    for name, value in pod.environment.items():
        if pattern("host-variable").search(name) and "://" not in value:
            hosts[value.partition(":")[0]] = value
    hosts |= {part["host"]: part[0] for text in texts for part in pattern("url").finditer(text)}
    for host, address in hosts.items():
        if pattern("bucket").fullmatch(address):
            findings.add("needs.bucket", (), None, host=address)
        elif not pattern("here").fullmatch(host) and not pattern("reached").fullmatch(address):
            findings.add("needs.reached-host", (), None, host=host)
    for library in ("horovod", "jax"):
        if training.count > 1 and pattern(library).search("\n".join([*texts, code])):
            findings.add(f"needs.{library}")


def relative_programs(words: Sequence[str]) -> list[str]:
    """The programs in the words that are found from where they start."""
    scripts = [word for word in words if re.search(r"[\s;&|]", word)]
    read = [] if any(map(pattern("brings").search, scripts)) else scripts
    read += [word for word in words if pattern("path").fullmatch(word)]
    return list(dict.fromkeys(part["path"] for word in read for part in pattern("path").finditer(word)))
