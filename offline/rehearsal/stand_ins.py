"""What a rehearsal has of its own for programs that no package index has: they speak as the real ones do.

The real program runs where it is on this machine. A stand-in says in its log that it is one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class StandIn:
    """A module of the project's that takes the command line of the program that it stands in for.

    ``requirements`` is the lock file of what it needs beside TensorFlow.
    """

    module: str
    title: str
    requirements: Path

    @property
    def environment(self) -> dict[str, str]:
        """What finds the module wherever the program is started."""
        return {"PYTHONPATH": str(ROOT)}


STAND_INS: Mapping[str, StandIn] = {
    "tensorflow_model_server": StandIn(
        "offline.serving",
        "a stand-in for TensorFlow Serving with the same REST and gRPC, whose speed is no measure of it",
        ROOT / "offline" / "serving" / "requirements.txt",
    ),
}
"""By the name of the program."""
