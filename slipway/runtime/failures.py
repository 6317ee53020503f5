"""Why a program failed: the line of its own that says so and, where it is known, the cause and what mends it.

Read in a pod once its program has ended, by rehearsals, and by `slipway watch`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple


class Cause(NamedTuple):
    """An error that is known: `pattern` finds its text, `says` is the cause, and `fix` what mends it.

    Named groups of the pattern may stand in both. `key` is the setting that is to be changed, empty where none is.
    `source` names the software whose version the text was read from.
    """

    kind: str
    pattern: str
    says: str
    fix: str
    key: str
    source: str


_TORCH, _TENSORFLOW, _CUDA = "PyTorch 2.15.0", "TensorFlow 2.21.0", "CUDA runtime 13.5.37"
_NCCL, _CUDNN, _PYTHON = "NCCL 2.32.3", "cuDNN 9.28.1", "CPython 3.11"
_KUBERNETES, _RUNC = "Kubernetes 1.37.2", "containerd 2.4.2 with runc"
_LESS_ON_GPU = "let it take less at a time (batch size), or use a pool whose GPU has more memory"
_DRIVER = "take an image with an older CUDA, or give the nodes a newer driver"
_SHARED = "give it more shared memory, which counts as its memory, or take fewer `num_workers`"
_FIRST = "the pod or rank that stopped first has the cause in its log; all others only waited for it"

# What explains others comes first: of the rows that find something the first counts.
CAUSES = tuple(
    Cause(*row)
    for row in (
        # How a container or Job ended, which only who looks from outside knows, with what is known of it.
        ("memory", r"^OOMKilled: (?P<known>.*)", "killed for want of memory: {known}", "raise its memory, or "
         "let it read less at a time", "memory", _KUBERNETES),
        ("time limit", r"^DeadlineExceeded: (?P<known>.*)", "ended by its time limit: {known}",
         "raise the limit; the next `pulumi up` starts it again, and what it has published and its newest "
         "checkpoint are still there", "time_limit", _KUBERNETES),
        ("gpu memory",
         r"CUDA out of memory\. Tried to allocate (?P<asked>[\d.]+ \w+)\. GPU \d+ has a total capacity of "
         r"(?P<total>[\d.]+ \w+)", "the GPU's memory is full: {asked} more were asked for, and it has {total}",
         _LESS_ON_GPU, "pool", _TORCH),
        ("memory", r"OOM when allocating tensor.*\bdevice:CPU|by allocator cpu\b", "its memory is full",
         "raise its memory, or let it read less at a time", "memory", _TENSORFLOW),
        ("gpu memory", r"OOM when allocating tensor|[Oo]ut of memory while trying to allocate|"
         r"Dst tensor is not initialized", "the GPU's memory is full", _LESS_ON_GPU, "pool", _TENSORFLOW),
        ("gpu memory", r"CUDA out of memory|CUDA(?: error|_ERROR)[:_ ]+out[_ ]of[_ ]memory|"
         r"CUBLAS_STATUS_ALLOC_FAILED", "the GPU's memory is full", _LESS_ON_GPU, "pool", _TORCH),
        ("shared memory", r"out of shared memory|insufficient shared memory|"
         r"shared memory\(shm\) for file|unable to \w+ (?:bytes )?(?:to|shared memory object|memory|"
         r"file) .*torch_|[Bb]us error|SIGBUS", "/dev/shm is full, through which DataLoader's workers hand over "
         "their batches", _SHARED, "shm", _TORCH),
        ("shared memory", r"(?:shared memory segment|shared memory file|No space left on device: ') ?/dev/shm/",
         "/dev/shm is full", _SHARED, "shm", _NCCL),
        ("disk", r"No space left on device: '(?P<path>(?:/[^']*)?/store/[^']*)'", "the volume of {path} is full",
         "let the volume grow, or delete what is not needed", "store.size", _PYTHON),
        ("disk", r"No space left on device: '(?P<path>[^']*)'|(?P<file>\S+): No space left on device",
         "the disk of {path}{file} is full", "let it write less outside of the store, or raise what it may "
         "write", "ephemeral_storage", _PYTHON),
        ("disk", r"No space left on device|Disk quota exceeded", "a disk is full", "let it write less outside "
         "of the store, or raise what it may write", "ephemeral_storage", _PYTHON),
        ("memory", r"\bMemoryError\b|Unable to allocate .* for an array|std::bad_alloc|can't allocate memory|"
         r"Cannot allocate memory|(?m:^(?:\S+: line \d+:\s+\d+ )?Killed\b)", "its memory is full",
         "raise its memory, or let it read less at a time", "memory", _PYTHON),
        ("library", r"ImportError: libGL\.so\.1", "OpenCV's desktop build wants the image to have a screen's "
         "libraries", "require opencv-python-headless in place of opencv-python", "requirements", "OpenCV 4.13"),
        ("no gpu", r"lib(?:cuda|nvidia-ml)\.so\.1: cannot open|Found no NVIDIA driver on your system|"
         r"No CUDA GPUs are available|no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE|"
         r"Attempting to deserialize object on a CUDA", "it sees no GPU", "ask for a GPU in the step, on a pool "
         "that has some", "gpus", _TORCH),
        ("no gpu", r"Torch not compiled with CUDA enabled", "this build of PyTorch is for CPUs alone",
         "require a build with CUDA, or take an image that has one", "requirements", _TORCH),
        ("driver", r"CUDA driver version is insufficient|NVIDIA driver on your system is too old|"
         r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|forward compatibility was attempted|unsatisfied condition: (?:cuda|"
         r"driver)", "the node's driver is older than the CUDA of its image", _DRIVER, "image", _CUDA),
        ("driver", r"[Dd]river/library version mismatch|does not match DSO version", "the node's driver was "
         "replaced while its module was loaded", "let the node restart, or be replaced", "", _TENSORFLOW),
        ("gpu model", r"no kernel image is available for execution", "this build has no code for the pool's GPU",
         "take a build, or an image, for its compute capability; or another pool", "image", _CUDA),
        ("broken gpu", r"uncorrectable (?:ECC|NVLink) error|system not yet initialized|"
         r"GPU has fallen off the bus", "the node's GPU is broken, or not ready", "run it again on another "
         "node, and report this one", "", _CUDA),
        ("gpu program", r"device-side assert triggered", "a kernel found a value that it does not allow, most "
         "often a label or index out of range", "with CUDA_LAUNCH_BLOCKING=1 in its environment the traceback "
         "is the true one", "environment", _CUDA),
        ("gpu program", r"an illegal memory access was encountered|unspecified launch failure", "a kernel read "
         "or wrote where it may not", "with CUDA_LAUNCH_BLOCKING=1 in its environment the traceback is the true "
         "one", "environment", _CUDA),
        ("cudnn",
         r"Loaded runtime CuDNN library: (?P<loaded>[\d.]+) but source was compiled with: (?P<wanted>[\d.]+)",
         "it found cuDNN {loaded}, and was built with {wanted}", "take the image of that version, or require "
         "one cuDNN alone", "requirements", _TENSORFLOW),
        ("cudnn", r"CUDNN_STATUS_(?:SUBLIBRARY_)?(?:VERSION_MISMATCH|LOADING_FAILED)", "it found libraries of "
         "two versions of cuDNN", "require one alone, and leave LD_LIBRARY_PATH unset", "requirements", _CUDNN),
        ("cudnn", r"CUDNN_STATUS_\w+|DNN library initialization failed|Could not create cudnn handle|"
         r"No DNN in stream", "cuDNN could not begin, most often since the GPU's memory is full", _LESS_ON_GPU,
         "pool", _CUDNN),
        ("nccl", r"[Dd]uplicate GPU detected", "two ranks use one GPU", "start as many processes on a node as "
         "it has GPUs, each on that of its LOCAL_RANK", "", _NCCL),
        ("nccl", r"no (?:socket )?interface found|Mismatched NCCL", "NCCL cannot begin: its ranks see no "
         "network interface, or have different versions", "give all one image; NCCL_SOCKET_IFNAME names the "
         "interface", "environment", _NCCL),
        ("port", r"[Aa]ddress already in use", "a port that it wants is taken", "let it take a free one (port "
         "0)", "", _PYTHON),
        ("module", r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'", "neither its image nor its "
         "requirements have the module {module}", "add its package to the requirements and compile the lock "
         "({lock}); name a file of your own under `files`", "requirements", _PYTHON),
        ("module", r"ImportError: cannot import name '(?P<name>[\w.]+)' from '(?P<module>[\w.]+)'",
         "the {module} that is installed has no {name}", "require the version that has it, and compile the lock "
         "({lock})", "requirements", _PYTHON),
        ("library", r"ImportError: (?P<library>lib\S+?): cannot open shared object", "its image has no "
         "{library}", "take an image that has it", "image", _PYTHON),
        ("platform", r"[Ee]xec format error|cannot execute binary file", "its program is built for another kind "
         "of processor, or is a script without `#!` in its first line", "build it for the node's (`--platform "
         "linux/amd64`), or write its interpreter before it", "image", _RUNC),
        ("program", r'exec: \"(?!apparmor)(?P<program>[^\"]+)\": (?:executable file not found|'
         r"stat .*no such file)", "its image has no program {program}", "write one that it has, or take another "
         "image", "image", _RUNC),
        ("program", r"(?P<program>[\w./-]+): (?:command )?not found", "its image has no program {program}",
         "write one that it has, or take another image", "image", "bash 5.2, dash 0.5.12"),
        ("processor", r"SIGILL|[Ii]llegal instruction", "its build uses instructions that the node's processor "
         "lacks", "take a newer machine type, or another build", "pool", _TENSORFLOW),
        ("token", r"GatedRepoError|Access to (?:model|dataset) \S+ is restricted|401 Client Error: Unauthorized",
         "the server wants a token that may read this", "give the step the token as a secret", "secrets",
         "huggingface_hub 1.0"),
        ("network", r"(?:Temporary failure in name resolution|Name or service not known|"
         r"Failed to resolve '(?P<host>[^']+)'|nodename nor servname)", "no name server knows {host}",
         "check the name; of other pods, only services and apps under `connects` are reached", "connects",
         _PYTHON),
        ("network", r"NewConnectionError|Connect(?:ion)?TimeoutError|Network is unreachable|\[Errno 11[03]\]",
         "it cannot connect to a server", "pods reach HTTPS of public addresses; name any other network under "
         "`slipway:egress.allow`", "egress.allow", "urllib3 2.6"),
        ("certificate", r"CERTIFICATE_VERIFY_FAILED", "it does not trust the server's certificate",
         "let its image have the authority, and REQUESTS_CA_BUNDLE name it", "environment", _PYTHON),
        ("files", r"Too many open files", "it has more files open than it may", "take fewer workers, or close "
         "files", "", _PYTHON),
        ("others", r"Watchdog caught collective operation timeout|NCCL operation timed out|"
         r"timed out in monitoredBarrier", "the ranks of the training waited too long for each other",
         f"{_FIRST}; where all were at work, give "
         "`init_process_group` a longer timeout", "", _TORCH),
        ("others", r"remote process exited or there was a network error|Connection closed by (?:remote )?peer|"
         r"The client socket has (?:timed out|failed to connect)|"
         r"(?:has failed, got preempted, or crashed unexpectedly)", "another process of the training ended "
         "before it, or cannot be reached", _FIRST, "", _NCCL),
    )
)  # fmt: skip

STACK_KEYS = frozenset({"memory", "ephemeral_storage", "gpus", "image", "pool", "shm", "time_limit"})
"""Keys of a step's settings that the stack file has; the others are in `pipeline.yaml`."""

_OTHERWISE = {"file": "", "path": "", "host": "the server's name", "lock": "slipway lock"}

_READ = 60
"""Lines from the end of a log in which an error is looked for."""

_PREFIX = re.compile(r"^\[rank\d+\]: ?")
_TRACEBACK = "Traceback (most recent call last):"

_WRAPPERS = re.compile(r"(?:[\w.]+\.)?(?:ChildFailedError|CalledProcessError|SystemExit|ProcessRaisedException)\b")
"""Exceptions that say that another process failed: its own words come before them."""

_ERROR = re.compile(
    r"(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt)\b|\[E\d{4} |"
    r"F\d{4} |(?i:(?:fatal|panic|(?:\w+ )?error)(?: error)?\b)[:!]|[\w./-]+: error: |"
    r"terminate called|.*\b(?:Segmentation fault|Bus error|Illegal instruction)\b|.*: (?:command )?not found$"
)
"""The lines in which programs say why they fail."""

_SCRIPT = re.compile(r"error: (?:[\w-]+\.[\w-]+: error: )?(?P<words>line \d+ of the script failed with \d+)")
"""What the shell of a step's script says after a program of it failed: which one, and not why."""

_OWN = re.compile(r"error: (?:[\w-]+\.[\w-]+: )?(?P<words>.*) \(exit code \d+\)$")
_NOT_OF_PROGRAM = re.compile(r"(?:note|warning): |Use: |.*; what it wrote is above \(exit code \d+\)$")


@dataclass(frozen=True)
class Failure:
    """The `line` in which a program says why it failed; empty where it wrote none, `last` is then its last one.

    `kind`, `says`, `fix` and `key` are those of a `Cause`, and empty where the error is not known.
    """

    line: str = ""
    last: str = ""
    kind: str = ""
    says: str = ""
    fix: str = ""
    key: str = ""

    def words(self, program: str) -> str:
        """What is said of the failure of `program`: its own line, else that it has none."""
        if self.line:
            return self.line
        return f"{program} failed; its last line: {self.last}" if self.last else f"{program} failed without a word"

    def advice(self, section: str = "") -> str:
        """What mends it, with the key of the step's settings; `section` is theirs in the stack file."""
        if not self.key:
            return self.fix
        if "." in self.key:
            return f"{self.fix}: `slipway:{self.key}`"
        return (
            f"{self.fix}: `{section}.{self.key}`"
            if section and self.key in STACK_KEYS
            else f"{self.fix}: `{self.key}`"
        )


def explain(log: str, ended: str = "", **names: str) -> Failure:
    """Why a program failed whose `log` ends so; `names` are what rows name, such as `lock`.

    `ended` says how it ended: the cause is looked for in it where the log has none.
    """
    lines = [_PREFIX.sub("", line.rstrip()) for line in log.splitlines()]
    lines = [line for line in lines if line.strip() and not _NOT_OF_PROGRAM.match(line)]
    of_script = [match["words"] for line in lines if (match := _SCRIPT.match(line))]
    lines = [line for line in lines if not _SCRIPT.match(line)]
    raised = [start for start, line in enumerate(lines) if line.endswith(_TRACEBACK) and not _wraps(lines, start)]
    said = [match["words"] for line in lines[-1:] if (match := _OWN.match(line))]
    errors = [line for line in lines[-_READ:] if _ERROR.match(line) and not _WRAPPERS.match(line)]
    raises = [_raised(lines, start) for start in raised[-1:]]
    line = next(filter(None, [*said, *raises, *errors[-1:], *of_script[-1:]]), "")
    first = min([*raised[-1:], max(len(lines) - _READ, 0)])
    cause = known("\n".join(lines[first:]), **names)
    cause = cause if cause.says else known(ended, **names)
    return replace(cause, line=line.strip(), last=lines[-1].strip() if lines else "")


def known(text: str, causes: Sequence[Cause] = CAUSES, **names: str) -> Failure:
    """The first of the `causes` whose pattern finds something in `text`; empty where none does."""
    for cause in causes:
        if match := re.search(cause.pattern, text):
            groups = {name: value for name, value in match.groupdict().items() if value}
            # A message that names one zone is told with it, in place of all zones of the pool.
            zone = {"zones": groups["zone"]} if "zone" in groups else {}
            words = {**_OTHERWISE, **names, **groups, **zone}
            says, fix = cause.says.format_map(words), cause.fix.format_map(words)
            return Failure(kind=cause.kind, says=says, fix=fix, key=cause.key)
    return Failure()


def _raised(lines: list[str], start: int) -> str:
    """The exception at the end of the traceback that begins at `start`: the next line that is not indented."""
    return next((line for line in lines[start + 1 :] if not line[0].isspace()), "")


def _wraps(lines: list[str], start: int) -> bool:
    return bool(_WRAPPERS.match(_raised(lines, start)))
