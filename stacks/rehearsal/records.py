"""What a rehearsal knows of each Job: shown while it runs, kept for the next run, and drawn in the report."""

from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from infra.platform import Resources


class Phase(StrEnum):
    """Where a Job is. The last five are ends."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not run"

    @property
    def over(self) -> bool:
        """Whether it is an end."""
        return self not in {Phase.WAITING, Phase.PENDING, Phase.RUNNING}


@dataclass
class JobRecord:
    """One Job. Times are seconds since the epoch, amounts those of `Resources`, ``peak_memory`` in MiB.

    ``requested`` is the whole pod with what a cloud injects. ``epochs`` are (done, all) of a training, as its log
    says.
    """

    urn: str
    name: str
    cluster: str = ""
    namespace: str = ""
    job_name: str = ""
    identity: str = ""
    phase: Phase = Phase.WAITING
    pool: str = ""
    node: str = ""
    accelerator: str = ""
    requested: Resources | None = None
    allocatable: Resources | None = None
    memory_limit: int | None = None
    started: float = 0.0
    finished: float = 0.0
    pending: float = 0.0
    attempts: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    peak_memory: int = 0
    epochs: tuple[int, int] | None = None
    notes: list[str] = field(default_factory=list[str])

    @property
    def seconds(self) -> float:
        """Wall time of the run that this tells of."""
        return max(self.finished - self.started, 0.0)

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "JobRecord":
        """From what `as_dict` gave; unknown keys are left out. Raises TypeError or ValueError otherwise."""
        known = {each.name for each in fields(cls)}
        values = {key: value for key, value in content.items() if key in known}
        for key in ("requested", "allocatable"):
            if values.get(key) is not None:
                values[key] = Resources(**values[key])
        values["phase"] = Phase(values.get("phase", Phase.WAITING))
        epochs = values.get("epochs")
        values["epochs"] = (int(epochs[0]), int(epochs[1])) if epochs else None
        return cls(**values)
