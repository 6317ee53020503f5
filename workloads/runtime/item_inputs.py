"""What a step that works on items is given: its items, and what decides their results. Standard library only."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads.runtime import command, items
from workloads.runtime.items import Item, Work
from workloads.runtime.store import Manifest, load_manifest


@dataclass
class Given:
    """The items, the program's words and variables, and what decides the results of all items alike."""

    items: Sequence[Item]
    words: list[str]
    environment: dict[str, str]
    work: Work
    inputs: Mapping[str, str]
    chosen: Mapping[str, Any] = field(default_factory=dict)

    def whole(self, options: argparse.Namespace) -> Manifest:
        """A manifest without files: what decides the result of the step."""
        settings = {**self.work.settings, "items": options.pattern, "mode": options.mode}
        return Manifest(options.step, {}, self.inputs, settings, {"best": dict(self.chosen)})


def give(options: argparse.Namespace) -> Given:
    """Check the inputs and list the items.

    The input that has the items is not read as a whole, unless the program reads it otherwise: each file is
    checked by the worker that gets it, and alone decides of its item. `options.pattern` becomes the portable one.

    Raises:
        StepError: BAD_INPUT where an input is not whole or has no items; StoreError.
    """
    chosen_from = {name for choice in options.choices for name in choice.among}
    source = items.source_of(options.items, options.inputs)
    apart = source is not None and source not in chosen_from and not _mentioned(options, options.inputs[source])
    inputs = {name: place for name, place in options.inputs.items() if not (apart and name == source)}
    # As one of the words, the pattern gets the directory of the best, too.
    asked = argparse.Namespace(**{**vars(options), "inputs": inputs, "words": [*options.words, options.items]})
    given = command._given(asked)
    pattern = given.words.pop()
    source = items.source_of(pattern, options.inputs)
    found = items.find(pattern, options.inputs[source] if source else None)
    supplied = {
        name: load_manifest(place).digest
        for name, place in (("packages", options.packages), ("libraries", options.libraries))
        if place is not None
    }
    *words, options.pattern = command._portable(
        argparse.Namespace(**{**vars(options), "words": [*options.words, options.items]})
    )
    settings = {
        "command": words,
        "code": items.digest_of_folder(options.code) if options.code != Path() else "",
        "fingerprint": options.fingerprint,
    }
    all_inputs = dict(given.inputs)
    if source is None:
        listed = Manifest("items", {}, {item.name: item.sha256 for item in found})
        all_inputs["items"] = listed.digest
    elif apart:
        all_inputs[source] = load_manifest(options.inputs[source]).digest
    work = Work(options.step, {**given.inputs, **supplied}, settings, options.mode == "ordered")
    return Given(found, given.words, given.environment, work, {**all_inputs, **supplied}, given.chosen)


def _mentioned(options: argparse.Namespace, place: Path) -> bool:
    # As a whole path or as the beginning of one: `data` is not a part of `database`.
    pattern = re.compile(rf"(?<![\w./-]){re.escape(str(place))}(?![\w.-])")
    return any(pattern.search(text) for text in (*options.words, *os.environ.values()))
