"""Runs one pod: its init containers in order, then its container, as processes of this machine."""

import os
import re
import stat
import sys
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from slipway.files import change_mode, remove
from slipway.infra.placed import FOLDERS, SHARED_MEMORY_PLACE
from slipway.infra.places import LIBRARY
from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.review.refused_writes import KEYS, places_of_writes, refused_path
from slipway.infra.review.stack import Properties, mapping, mappings
from slipway.infra.schema.paths import LONGEST_PATH
from slipway.infra.schema.quantities import mebibytes
from slipway.rehearse.cluster import cluster_objects
from slipway.rehearse.cluster.cluster_objects import ApiServer, Namespace, RefusedError, contents
from slipway.rehearse.cluster.pods import Container, Mount, PodSpec, UnsupportedError
from slipway.rehearse.cluster.scheduler import Placement
from slipway.rehearse.machine import boxes, processes
from slipway.rehearse.machine.boxes import Box, BoxMount
from slipway.rehearse.machine.processes import Launch, Reaper, Stop
from slipway.runtime.masking import Masker

STORE_VOLUME = "store"
"""The name of the volume that a CSI driver mounts the store as."""

PROJECTED = {"configMap": ("ConfigMap", "name"), "secret": ("Secret", "secretName")}
"""Volume sources whose files come from an object: its kind, and the field that names it."""


@dataclass(frozen=True)
class Volumes:
    """The folders of one pod's volumes, by volume name. ``shared`` are those that outlive the pod."""

    folders: Mapping[str, Path]
    shared: frozenset[str]

    def mounts(self, container: Container) -> dict[str, Path]:
        """Where each mount path of ``container`` is here that its words name in place of the one in a cluster.

        Raises RefusedError where a volume is not declared.
        """
        for mount in container.mounts:
            if mount.volume not in self.folders:
                raise RefusedError(f'spec.containers.volumeMounts.name: Not found: "{mount.volume}"')
        return {mount.path: self._folder(mount) for mount in named_mounts(container)}

    def built_in(self, container: Container) -> list[BoxMount]:
        """The further mounts of volumes: a program finds them at these paths, whatever it is told.

        As the kubelet does it, their folders are made where they are not there.
        """
        named = named_mounts(container)
        mounts = [
            BoxMount(self._folder(mount), mount.path, writable=not mount.read_only)
            for mount in container.mounts
            if mount not in named
        ]
        for mount in mounts:
            mount.source.mkdir(parents=True, exist_ok=True)
        return mounts

    def _folder(self, mount: Mount) -> Path:
        return self.folders[mount.volume] / mount.sub_path

    def protect(self, container: Container) -> None:
        """Takes write permission from what ``container`` mounts read-only; the store's is left as it is."""
        for mount in named_mounts(container):
            if mount.read_only and mount.volume not in self.shared:
                change_mode(self.folders[mount.volume], writable=False)

    def unprotect(self) -> None:
        """Restores the write permissions."""
        for name, folder in self.folders.items():
            if name not in self.shared:
                change_mode(folder, writable=True)


def named_mounts(container: Container) -> Sequence[Mount]:
    """The mounts of ``container`` whose paths its words name: the first of each volume, and those of data."""
    first: dict[str, Mount] = {}
    for mount in container.mounts:
        first.setdefault(mount.volume, mount)
    return [
        mount for mount in container.mounts if mount is first[mount.volume] or mount.path.startswith(f"{FOLDERS}/")
    ]


def prepare(
    pod: PodSpec,
    namespace: Namespace,
    folder: Path,
    store: Path,
    drivers: Collection[str],
    *,
    kept: Mapping[str, Path] = MappingProxyType({}),
) -> Volumes:
    """Makes the pod's volumes below ``folder``; the store, which the CSI ``drivers`` mount, is at ``store``.

    ``kept`` are folders that outlive the pod, by the names of the volumes that they stand for. Raises RefusedError
    where an object that a volume names is missing, as the kubelet would say it, and UnsupportedError for a kind of
    volume that a rehearsal cannot stand in for.
    """
    folders = dict(kept)
    shared = set(kept)
    for name, volume in pod.volumes.items():
        kind = next((key for key in volume if key != "name"), "emptyDir")
        source = mapping(volume.get(kind))
        if kind in {"persistentVolumeClaim", "csi"}:
            _check_shared(name, pod, namespace, drivers)
            folders[name] = kept.get(name, store)
            shared.add(name)
            continue
        folders[name] = folder / name
        folders[name].mkdir(parents=True)
        if kind in PROJECTED:
            _project(name, kind, source, namespace, folders[name])
        elif kind != "emptyDir":
            raise UnsupportedError(f"volume {name!r}: a rehearsal has nothing to stand in for {kind}")
    return Volumes(folders, frozenset(shared))


def _check_shared(name: str, pod: PodSpec, namespace: Namespace, drivers: Collection[str]) -> None:
    volume = pod.volumes[name]
    if (source := mapping(volume.get("csi"))) and source.get("driver") not in drivers:
        raise UnsupportedError(
            f"CSI driver {source.get('driver')!r}: a rehearsal knows {', '.join(drivers) or 'none'}"
        )
    store = mapping(mapping(pod.volumes.get(STORE_VOLUME)).get("csi"))
    if source and name != STORE_VOLUME and source != store:
        # The store's folder in its place would show all of the store.
        raise UnsupportedError(f"volume {name!r}: a rehearsal has a store, and nothing that is another bucket")
    claim = str(mapping(volume.get("persistentVolumeClaim")).get("claimName"))
    if not source and not namespace.find("PersistentVolumeClaim", claim):
        raise RefusedError(f'persistentvolumeclaim "{claim}" not found')


def _project(volume: str, source_kind: str, source: Properties, namespace: Namespace, folder: Path) -> None:
    kind, name_key = PROJECTED[source_kind]
    name = str(source[name_key])
    object_ = namespace.find(kind, name)
    failed = f'MountVolume.SetUp failed for volume "{volume}"'
    if object_ is None:
        if source.get("optional"):
            return
        raise RefusedError(f'{failed}: {kind.lower()} "{name}" not found')
    values = contents(object_)
    for item in mappings(source.get("items")) or [{"key": key, "path": key} for key in values]:
        key, path = str(item["key"]), str(item["path"])
        if key not in values:
            raise RefusedError(f"{failed}: {kind.lower()} references non-existent config key: {key}")
        if path.startswith("/") or ".." in path.split("/"):
            raise RefusedError(f"{failed}: invalid path {path!r}")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(values[key])
        target.chmod(int(item.get("mode") or source.get("defaultMode") or 0o644) | stat.S_IWUSR)


def masking(secrets: Iterable[str]) -> Callable[[bytes], bytes]:
    """What makes of a line of a log one without these secrets."""
    hidden = [secret for secret in secrets if secret]
    if not hidden:
        return lambda line: line
    masker = Masker(hidden)
    return lambda line: masker.mask(line.decode(errors="surrogateescape")).encode(errors="surrogateescape")


VIRTUAL_NODE = "SLIPWAY_VIRTUAL_NODE"
"""Tells what measures a step the name of its node, whose life is not that of this machine."""

VIRTUAL_ACCELERATORS = "SLIPWAY_VIRTUAL_ACCELERATORS"
"""Tells the workloads which accelerators to find, as a device plugin does with NVIDIA_VISIBLE_DEVICES."""

PASSED_ON = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "PIP_CERT", "PIP_TRUSTED_HOST"),
    "LD_LIBRARY_PATH",
)
"""What a container gets of this machine's environment: the way to the network, and to Python's own libraries."""

MESSAGE_LINES = 80
MESSAGE_BYTES = 2048
"""Kubernetes' bounds on the log that stands in for a termination message (kubernetes.io/docs/tasks/debug/
debug-application/determine-reason-pod-failure, seen November 2026)."""

TEMPORARY = "/tmp"

_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")
"""Kubernetes' reference to a variable in commands, arguments and environment."""

_MARKS = 0xF0000
"""The first of the characters, of those for private use, that stand for addresses while a text is rewritten."""

_FIELD_WITH_KEY = re.compile(r"metadata\.(?P<of>labels|annotations)\['(?P<key>[^']+)'\]")


OOM_KILLED = "OOMKilled"
"""The reason of a container that the kernel killed for want of memory."""

EVICTED = "evicted"
"""Why a pod is stopped that loses its node: the kind of its stop."""


@dataclass(frozen=True)
class PodResult:
    """How a pod ended. ``message`` are its log's last lines; ``disrupted`` is the condition DisruptionTarget."""

    succeeded: bool
    container: str
    exit_code: int
    reason: str
    message: str
    disrupted: bool
    peak_memory: int

    @property
    def ending(self) -> str:
        """A sentence about the container that ended the pod."""
        return f"container {self.container!r} exited with {self.exit_code} ({self.reason})"


@dataclass(frozen=True)
class Pod:
    """A pod that is placed. ``write`` gets each line of its output.

    ``volumes`` are folders that outlive it, by the names of the volumes that they stand for. ``addresses`` are
    patterns of what is another address on this machine, by that address.
    """

    name: str
    namespace: Namespace
    spec: PodSpec
    placement: Placement
    stop: Stop
    write: Callable[[bytes], None]
    volumes: Mapping[str, Path] = field(default_factory=dict[str, Path])
    addresses: Mapping[str, re.Pattern[str]] = field(default_factory=dict[str, re.Pattern[str]])


@dataclass(frozen=True)
class PreparedCommand:
    """A container's command line, the folders in which its programs are looked for, and variables of its own."""

    words: Sequence[str]
    path: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


Prepare = Callable[[Pod, Container, Sequence[str], Path], PreparedCommand | None]
"""Prepares a container with this command line that starts in this folder; None leaves it to the project's Python,
which has what the modules of the project need. Raises RefusedError."""


@dataclass(frozen=True)
class Kubelet:
    """Runs pods below ``folder``, with the store that they share, which CSI ``drivers`` mount, at ``store``.

    ``api`` answers pods that have a service account's token. ``unheld`` is called where their processes cannot be
    kept from listening on all addresses of this machine.
    """

    reaper: Reaper
    folder: Path
    store: Path
    drivers: Collection[str] = ()
    api: ApiServer | None = None
    prepare: Prepare | None = None
    unheld: Callable[[], None] = lambda: None

    def run(self, pod: Pod) -> PodResult:
        """Runs ``pod`` to its end. Raises RefusedError and UnsupportedError where it cannot be started."""
        folder = self.folder / pod.name
        remove(folder)
        try:
            mounted = prepare(pod.spec, pod.namespace, folder, self.store, self.drivers, kept=pod.volumes)
            if self.api is None or not cluster_objects.mounts_token(pod.spec, pod.namespace):
                return self._run_containers(pod, mounted, folder, None)
            token = cluster_objects.mount(pod.spec, pod.namespace, folder)
            with self.api.serving(token) as url:
                return self._run_containers(pod, mounted, folder, url)
        finally:
            remove(folder)

    def _run_containers(self, pod: Pod, mounted: Volumes, folder: Path, api: str | None) -> PodResult:
        peak = 0
        for container in pod.spec.init_containers:
            result = self._run_container(pod, container, mounted, folder, api)
            peak = max(peak, result.peak_memory)
            if not result.succeeded:
                return result
        result = self._run_container(pod, pod.spec.container, mounted, folder, api)
        return replace(result, peak_memory=max(peak, result.peak_memory))

    def _run_container(
        self, pod: Pod, container: Container, mounted: Volumes, folder: Path, api: str | None
    ) -> PodResult:
        boxed = boxes.available() and container.read_only_root
        shared = next((mount for mount in container.mounts if mount.path == SHARED_MEMORY_PLACE), None)
        if boxed and shared:
            # It is made in the box, as large as it is declared.
            container = replace(container, mounts=[mount for mount in container.mounts if mount != shared])
        mounts = mounted.mounts(container)
        if api is not None:
            mounts[cluster_objects.FOLDER] = cluster_objects.folder_of(folder)
        launch = self._launch(pod, container, mounts, mounted.built_in(container), folder)
        if launch.box and shared:
            size = mapping(pod.spec.volumes[shared.volume].get("emptyDir")).get("sizeLimit")
            shm = mebibytes(size) if size else container.memory_limit or boxes.SHARED_MEMORY
            launch = replace(launch, box=replace(launch.box, shared_memory=shm))
        if api is not None:
            command = [word.replace(cluster_objects.API, api) for word in launch.command]
            launch = replace(launch, command=command)
        mounted.protect(container)
        tail = deque[bytes](maxlen=MESSAGE_LINES)
        masked = masking(self._secrets(pod, container))

        def write(line: bytes) -> None:
            masked_line = masked(line)
            tail.append(masked_line)
            pod.write(masked_line)

        ended = processes.run(launch, self.reaper, pod.stop, write)
        mounted.unprotect()
        refused, path = refused_path([line.decode(errors="replace") for line in tail])
        if ended.code and launch.writable is not None and refused:
            write(f"{_may_write(container, path)}\n".encode())
        reason = "Completed" if ended.code == 0 else OOM_KILLED if ended.oom_killed else "Error"
        return PodResult(
            succeeded=ended.code == 0,
            container=container.name,
            exit_code=ended.code,
            reason=reason,
            message=b"".join(tail)[-MESSAGE_BYTES:].decode(errors="replace"),
            disrupted=pod.stop.kind == EVICTED,
            peak_memory=ended.peak_memory,
        )

    def _launch(
        self,
        pod: Pod,
        container: Container,
        mounts: Mapping[str, Path],
        built_in: Sequence[BoxMount],
        folder: Path,
    ) -> Launch:
        variables = self._variables(pod, container)

        def here(text: str) -> str:
            return localize(replace_addresses(text, pod.addresses), mounts)

        local_variables = {name: here(value) for name, value in variables.items()}
        scratch = mounts.get(TEMPORARY, folder / "scratch")
        scratch.mkdir(parents=True, exist_ok=True)
        words = [here(expand(word, variables)) for word in (*container.command, *container.args)]
        working_dir = Path(localize(container.working_dir, mounts)) if container.working_dir else scratch
        if not working_dir.is_dir():
            raise RefusedError(
                f"workingDir {container.working_dir!r} is in no volume, and a rehearsal has no image"
            )
        prepared = self.prepare(pod, container, words, working_dir) if self.prepare else None
        prepared = prepared or in_project(words)
        environment = {
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            "PATH": os.pathsep.join(prepared.path),
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            "LANG": "C.UTF-8",
            "HOSTNAME": pod.spec.hostname or pod.name,
            VIRTUAL_NODE: pod.placement.node_name,
            **self._devices(pod, container),
            **local_variables,
            **prepared.environment,
        }
        box = self._box(container, built_in, folder, scratch, _used(mounts, environment, prepared))
        if container.read_only_root and not box:
            # It takes an environment for writable that nothing but the box makes read-only.
            environment = {"PIP_USER": "1", **environment}
        return Launch(
            command=prepared.words,
            environment=environment,
            folder=working_dir,
            memory=container.memory_limit,
            cpu_request=container.requests.cpu,
            cpu_limit=container.cpu_limit,
            writable=[scratch, *_writable(container, mounts)] if container.read_only_root else None,
            unheld=self.unheld,
            box=box and replace(box, protected=_read_only(container, mounts)),
        )

    @staticmethod
    def _box(
        container: Container, built_in: Sequence[BoxMount], folder: Path, scratch: Path, used: Sequence[Path]
    ) -> Box | None:
        """What ``container`` sees of this machine, where it may write to its volumes alone.

        Raises RefusedError where it has to see folders at other paths, and this machine cannot do that.
        """
        if not boxes.available():
            if built_in:
                paths = ", ".join(mount.path for mount in built_in)
                raise RefusedError(f"its program has {paths} built in, which takes {boxes.NEEDED}")
            return None
        if not container.read_only_root and not built_in:
            return None
        root = folder / "box"
        root.mkdir(exist_ok=True)
        return Box(root, scratch, used, built_in, required=bool(built_in))

    def _variables(self, pod: Pod, container: Container) -> dict[str, str]:
        """The declared environment, with the mount paths that a container in a cluster has."""
        variables: dict[str, str] = {}
        for entry in container.env:
            name = str(entry["name"])
            source = entry.get("valueFrom")
            if source:
                value = self._value_from(pod, source, name)
                if value is not None:
                    variables[name] = value
            else:
                variables[name] = expand(str(entry.get("value") or ""), variables)
        return variables

    def _secrets(self, pod: Pod, container: Container) -> Iterator[str]:
        """The values in its environment that come from Secrets."""
        for entry in container.env:
            source = entry.get("valueFrom")
            if source and "secretKeyRef" in source:
                yield self._value_from(pod, source, str(entry["name"])) or ""

    def _value_from(self, pod: Pod, source: Properties, name: str) -> str | None:
        if "fieldRef" in source:
            return field_value(pod, str(source["fieldRef"]["fieldPath"]))
        for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if key in source:
                reference = source[key]
                object_ = pod.namespace.find(kind, str(reference["name"]))
                values = contents(object_) if object_ else {}
                if reference["key"] in values:
                    return values[reference["key"]].decode()
                if reference.get("optional"):
                    return None
                raise RefusedError(
                    f"CreateContainerConfigError: couldn't find key {reference['key']} in {kind} "
                    f"{pod.namespace.name}/{reference['name']}"
                )
        raise UnsupportedError(f"env {name}: a rehearsal does not know {', '.join(source)}")

    def _devices(self, pod: Pod, container: Container) -> dict[str, str]:
        if not container.requests.gpus:
            return {}
        if pod.placement.node.accelerator is None:
            raise RefusedError(
                f"{pod.placement.node_name} offers {GPU_RESOURCE}, but nothing says which accelerator"
            )
        return {VIRTUAL_ACCELERATORS: f"{pod.placement.node.accelerator}:{container.requests.gpus}"}


def in_project(words: Sequence[str]) -> PreparedCommand:
    """``words`` as the project's own Python runs them, which has what its modules need."""
    python = [sys.executable] if words[0] in {"python", "python3"} else [words[0]]
    path = [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    return PreparedCommand([*python, *words[1:]], path)


def field_value(pod: Pod, path: str) -> str:
    """The value of a field that the downward API offers. Raises UnsupportedError for any other."""
    fields = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace.name,
        "metadata.uid": str(
            uuid.uuid5(uuid.NAMESPACE_URL, f"{pod.namespace.cluster}/{pod.namespace.name}/{pod.name}")
        ),
        "spec.nodeName": pod.placement.node_name,
        "spec.serviceAccountName": pod.spec.service_account,
        "status.podIP": "192.0.2.1",
        "status.hostIP": "192.0.2.2",
    }
    value = fields.get(path) or label_at(pod.spec, path)
    if value is None:
        raise UnsupportedError(f"a rehearsal does not know the field {path}")
    return value


def label_at(spec: PodSpec, path: str) -> str | None:
    """The value of the label or annotation that ``path`` names; None where it names another field."""
    if match := _FIELD_WITH_KEY.fullmatch(path):
        return (spec.labels if match["of"] == "labels" else spec.annotations).get(match["key"], "")
    return None


def expand(text: str, variables: Mapping[str, str]) -> str:
    """``text`` with each ``$(NAME)`` replaced by its variable and each ``$$`` by ``$``.

    A reference to a variable that there is not stays as it is, like a ``$`` that begins no reference
    (kubernetes/third_party/forked/golang/expansion, Kubernetes 1.34).
    """

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "$"
        return variables.get(name, match[0])

    return _REFERENCE.sub(replace, text)


def replace_addresses(text: str, addresses: Mapping[str, re.Pattern[str]]) -> str:
    """``text`` with what each pattern matches replaced by its address.

    The patterns are looked for one after the other, and none matches in an address that was just inserted: a port
    of this machine may equal a port that the container was given.
    """
    marks = {chr(_MARKS + index): address for index, address in enumerate(addresses)}
    for mark, pattern in zip(marks, addresses.values(), strict=True):
        text = pattern.sub(mark, text)
    for mark, address in marks.items():
        text = text.replace(mark, address)
    return text


def _writable(container: Container, mounts: Mapping[str, Path]) -> list[Path]:
    """Where on this machine ``container`` may write: its volumes, and what a program's code names as /tmp."""
    volumes_of = [mounts[mount.path] for mount in named_mounts(container) if not mount.read_only]
    return [*volumes_of, *([Path(TEMPORARY)] if TEMPORARY in mounts else [])]


def _read_only(container: Container, mounts: Mapping[str, Path]) -> list[Path]:
    """The folders here that ``container`` may only read, though they are in a volume that it may write."""
    named = [mount for mount in named_mounts(container) if mount.read_only and mount.sub_path]
    return [mounts[mount.path] for mount in named]


def _used(mounts: Mapping[str, Path], environment: Mapping[str, str], prepared: PreparedCommand) -> list[Path]:
    """The files of this machine that a container uses: volumes, Python, what its environment names."""
    python = [sys.prefix, sys.base_prefix, str(LIBRARY), *(str(Path(path).parent) for path in prepared.path)]
    named = [part for name in PASSED_ON for part in environment.get(name, "").split(os.pathsep)]
    words = [word for word in prepared.words if len(word) < LONGEST_PATH]
    return [
        *mounts.values(),
        *(Path(text) for text in (*python, *prepared.path, *named, *words) if text.startswith(f"{TEMPORARY}/")),
    ]


def _may_write(container: Container, path: str) -> str:
    places = places_of_writes([mount.path for mount in container.mounts if not mount.read_only])
    why = f"{path} is in none of them" if path else "its image is read-only"
    return f"note: as in a cluster, {places}, and {why}. {KEYS}"


def localize(text: str, mounts: Mapping[str, Path]) -> str:
    """``text`` with every path at or below a mount path replaced by where that mount is on this machine.

    A mount path counts where it begins a path: at the start, or after a character that no path component has. The
    longest mount path that fits wins, and what was replaced is not looked at again.
    """
    if not mounts:
        return text
    paths = sorted((path.rstrip("/") for path in mounts), key=len, reverse=True)
    pattern = rf"(?<![\w./-])(?P<path>{'|'.join(map(re.escape, paths))})(?![\w.-])"
    places = {path.rstrip("/"): str(place) for path, place in mounts.items()}
    return re.sub(pattern, lambda match: places[match["path"]], text)
