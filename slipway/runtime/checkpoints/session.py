"""The checkpoints of a program: restored before it runs, copied to the store beside it, and finished after it.

The program has a folder on the disk of its node. A thread looks there for the newest checkpoint, and copies it
piece by piece, with a lower priority; what the program writes meanwhile waits, and only the newest is copied
next. No trouble with it ends the program: what could not be copied is said. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from slipway.runtime.checkpoints.captures import (
    NO_VERSION,
    Capture,
    ChangedError,
    Entry,
    Signature,
    Version,
    capture,
    entries,
    has_lost_files,
    signature_of,
)
from slipway.runtime.checkpoints.copies import Copies, Copy, Pace, StoppedError
from slipway.runtime.parts import RESTORE, timed
from slipway.runtime.store import StoreError, explain, size_text

VARIABLE = "SLIPWAY_CHECKPOINT"
"""Names the program's folder in its environment."""
EVERY_VARIABLE = "SLIPWAY_CHECKPOINT_EVERY"
"""Has half of the seconds of `every`, where the step says it: how often the program is to save."""
REFERENCE = "{checkpoint}"

NICE = 5
"""How much lower the priority of the copy is than the program's. One that is much lower would never end beside a
program that computes on all cores."""
POLL = 0.5
"""Seconds between two looks at the folder."""
SETTLED = 1.0
"""Seconds for which a checkpoint has to stay as it was captured before it counts."""
AGAIN = 10.0
"""Seconds until a copy is tried again that the store refused."""
LAST_TRIES = 3
"""How often the last copy is tried that the store refused."""
HELD = 4
"""Of a step whose pods all write: checkpoints that a pod holds until the first pod has chosen one of them."""
_MOST_WARNINGS = 20
_LONGER = 1.25
"""How much longer the next copy may take than the last one."""
_NEVER = float("-inf")


class Checkpoints:
    """Copies checkpoints from `local`, a folder of the node's disk, which it owns: with `every` in time for the
    newest one in the store to be no older than so many seconds, else each one; with at most `bandwidth` bytes a
    second, 0 for any.

    Of a step whose pods all write `parts`, the first pod chooses which checkpoints are copied, and each that
    `follows` copies its part of them. Then each checkpoint has a name of its own.
    """

    def __init__(
        self,
        local: Path,
        copies: Copies,
        *,
        every: float = 0.0,
        bandwidth: float = 0.0,
        parts: bool = False,
        follows: bool = False,
    ) -> None:
        self.folder = local / "files"
        self.lasted = 0.0
        """Seconds that the last copy took."""
        self._captured = local / "captured"
        self._copies = copies
        self._every = every
        self._bandwidth = bandwidth
        self._parts = parts
        self._follows = follows
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._said: set[str] = set()
        self._number = 0
        self._reset()

    @property
    def environment(self) -> dict[str, str]:
        """What the program is told."""
        every = {EVERY_VARIABLE: f"{self._every / 2:g}"} if self._every else {}
        return {VARIABLE: str(self.folder), **every}

    def fill(self, text: str) -> str:
        """`text` with the folder in place of its reference."""
        return text.replace(REFERENCE, str(self.folder))

    @timed(RESTORE)
    def restore(self, chosen: str = "", *, alone: bool = True) -> Copy | None:
        """Make the folder, with the newest whole checkpoint and nothing else; None where there is none.

        Where the pod is not `alone`, it is the one that was chosen for all, or none where that is empty: `chosen`
        is the name of its folder in the store.

        Raises:
            NotWholeError: the chosen one is not whole. StoreError: the store or the disk cannot be used.
        """
        began = time.monotonic()
        self._reset()
        try:
            self.close()
            self.folder.mkdir(parents=True)
            for name in self._copies.foreign() if alone else ():
                self._say(f"Checkpoint {name} is passed over: it is of other inputs or another command line")
            copy = self._copies.restore(self.folder, self._say, chosen) if alone or chosen else None
            for entry in entries(self.folder).values():
                self._see(entry)
        except OSError as error:
            raise StoreError(f"the checkpoints in {self._copies.folder}: {explain(error)}") from error
        if copy is not None:
            seconds = time.monotonic() - began
            self._say(f"Checkpoint {copy.name} is restored: {size_text(copy.size)} in {seconds:.1f} s")
        return copy

    def newest(self) -> str:
        """The name of the folder in the store of the newest whole checkpoint; empty where there is none.

        Raises StoreError.
        """
        try:
            return next((copy.folder.name for copy in self._copies.whole()), "")
        except OSError as error:
            raise StoreError(f"the checkpoints in {self._copies.folder}: {explain(error)}") from error

    def start(self, attempt: str = "") -> None:
        """Begin to copy. `attempt` is what all pods have that copy parts of the same checkpoints."""
        if attempt:
            self._copies.begin(attempt)
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """From now on copy the newest at once, and as fast as it goes: the pod has to end."""
        self._hurried = True
        self._pace.hurry()
        self._wake.set()

    def finish(self, seconds: Callable[[], float | None] = lambda: None) -> None:
        """Copy the newest once the program has ended, and end. `seconds` says, again and again, how many are left;
        None: as many as it takes.
        """
        if self._thread is None:
            return
        self._ending = True
        self.hurry()
        while self._thread.is_alive() and (left := seconds()) != 0:
            self._thread.join(POLL if left is None else min(POLL, left))
        if self._thread.is_alive():
            self._say("warning: no time was left to copy the newest checkpoint")
            self._pace.stop()
            self._thread.join(1.0)
        self._thread = None

    def stop(self) -> None:
        """End without another copy: the program has done its work."""
        self._pace.stop()
        self._ending = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5.0)
        self._thread = None

    def close(self) -> None:
        """Delete the folder of the node."""
        shutil.rmtree(self.folder.parent, ignore_errors=True)

    def _reset(self) -> None:
        self._seen: dict[str, tuple[Version, Signature]] = {}
        self._held: dict[str, Capture] = {}
        self._copied: set[str] = set()
        self._ending = self._hurried = False
        self._saved = _NEVER
        self._looked = time.monotonic()
        self._wake.clear()
        self._pace = Pace(self._bandwidth, self._between)

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            # Only Linux has a priority of each thread.
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICE)
        retry, tries = 0.0, LAST_TRIES
        while True:
            is_last = self._ending
            pause = POLL
            try:
                if is_last or self._hurried or time.monotonic() >= retry:
                    pause = 0.0 if self._copy_next() else POLL
            except StoppedError:
                return
            except ChangedError as error:
                self._warn(f"a checkpoint was not copied: {error}. Let the program rename it when it is whole")
            except Exception as error:
                text = explain(error) if isinstance(error, OSError) else str(error) or repr(error)
                self._warn(f"a checkpoint was not copied: {text}")
                retry, tries = time.monotonic() + AGAIN, tries - is_last
                if is_last and tries > 0:
                    time.sleep(POLL)
                    continue
            if pause and is_last:
                return
            if pause:
                self._wake.wait(pause)
                if not self._ending:
                    self._wake.clear()

    def _copy_next(self) -> bool:
        """Copy what is next; whether there was any. Raises ChangedError, OSError, StoreError, StoppedError."""
        captured = self._follow() if self._follows else self._choose()
        if captured is None:
            return False
        key = captured.name if self._parts else f"{captured.name}/{self._number}"
        self._number += 1
        began = time.monotonic()
        try:
            self._copies.write(captured, key, self._pace, lambda: self._settle(captured))
        except (OSError, StoreError, ChangedError) as error:
            # It is looked at again. What the program writes to may never be left alone: that waits for its time.
            self._seen[captured.name] = NO_VERSION, captured.signature
            if not (isinstance(error, ChangedError) and captured.entry.path.exists()):
                self._saved = _NEVER
            raise
        finally:
            captured.release()
        self._copied.add(captured.name)
        self.lasted = time.monotonic() - began
        what = "A part of checkpoint" if self._parts else "Checkpoint"
        self._say(f"{what} {captured.name} is in the store: {size_text(captured.size)} in {self.lasted:.1f} s")
        if not self._follows:
            self._copies.prune()
        return True

    def _choose(self) -> Capture | None:
        """The newest that is not copied yet, where it is time for one."""
        due = self._saved + self._every - _LONGER * self.lasted - POLL
        if not (self._hurried or self._ending) and time.monotonic() < due:
            return None
        unseen = self._unseen()
        if not unseen:
            return None
        captured = capture(unseen[-1], self._captured / str(self._number))
        for entry in unseen[:-1]:
            self._see(entry)
        self._seen[captured.name] = captured.entry.version, captured.signature
        # By a clock that may be set meanwhile.
        age = min(max(0.0, time.time() - captured.entry.named / 1e9), self._every)
        self._saved = captured.begun - age
        return captured

    def _follow(self) -> Capture | None:
        """The newest that the first pod has chosen."""
        self._hold()
        chosen = [name for name in self._held if self._copies.is_begun(name)]
        for older in chosen[:-1]:
            self._held.pop(older).release()
        return self._held.pop(chosen[-1]) if chosen else None

    def _between(self) -> None:
        """What is done between two pieces of a copy."""
        if self._follows and time.monotonic() - self._looked > POLL:
            with contextlib.suppress(OSError, ChangedError):
                self._hold()

    def _hold(self) -> None:
        """Capture what is new: the program may delete it before the first pod has chosen."""
        self._looked = time.monotonic()
        for entry in self._unseen():
            self._number += 1
            captured = capture(entry, self._captured / str(self._number))
            self._held[captured.name] = captured
            self._seen[captured.name] = entry.version, captured.signature
        for name in list(self._held)[:-HELD]:
            self._held.pop(name).release()

    def _unseen(self) -> list[Entry]:
        """The checkpoints that were not there before, the newest last. One that may be in deletion comes first."""
        present = entries(self.folder)
        self._seen = {name: seen for name, seen in self._seen.items() if name in present}
        unseen = [entry for entry in present.values() if self._is_new(entry)]
        if self._parts:
            unseen = [entry for entry in unseen if not self._is_repeated(entry)]
        return sorted(unseen, key=lambda entry: (entry.is_sealed, entry.changed, entry.path.name))

    def _is_new(self, entry: Entry) -> bool:
        """Whether it is not as it was seen, without being deleted."""
        seen = self._seen.get(entry.path.name)
        if seen is None:
            return True
        version, signature = seen
        if version == entry.version:
            return False
        with contextlib.suppress(FileNotFoundError):
            if not has_lost_files(signature, signature_of(entry.path)):
                return True
            self._see(entry)
        return False

    def _see(self, entry: Entry) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._seen[entry.path.name] = entry.version, signature_of(entry.path)

    def _is_repeated(self, entry: Entry) -> bool:
        """Whether there was another one of the same name, which other pods cannot tell from this one."""
        name = entry.path.name
        if name not in self._copied and name not in self._held:
            return False
        if name in self._held:
            self._held.pop(name).release()
        self._see(entry)
        self._copies.forget(name)
        self._warn(f"checkpoint {name} was written twice: where all pods write parts, each has another name")
        return True

    def _settle(self, captured: Capture) -> None:
        """Wait until it would have shown that it is still written to."""
        while not (self._hurried or self._ending):
            left = captured.begun + SETTLED - time.monotonic()
            if left <= 0:
                return
            self._wake.wait(left)

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr if text.startswith("warning") else sys.stdout, flush=True)

    def _warn(self, text: str) -> None:
        if text not in self._said and len(self._said) < _MOST_WARNINGS:
            self._said.add(text)
            self._say(f"warning: {text}")
