"""Data that pipelines read as inputs: whether it is there, and still what the stack file pins."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from slipway.infra.clouds.contract import ListingError
from slipway.infra.commands import command
from slipway.infra.review.facts import STACK, Observation, Probe, fine, unknown, wrong
from slipway.infra.schema.names import short_digest
from slipway.offline.evaluated.phrasing import many
from slipway.tools.pin_inputs import FAILURES, Listings, PipelineInput, digest, inputs_of

PIN = command("pin-inputs", stack=STACK)
CHECK = command("pin-inputs", stack=STACK, check=True)


def probes(stack: str, configuration: Mapping[str, Any]) -> Iterator[Probe]:
    """The checks of the inputs of a stack with this configuration."""
    for known in inputs_of(configuration):
        # Each lists by itself: they run side by side.
        listings = Listings(stack, configuration)
        yield Probe(f"input {known.name}", partial(_check, known, listings))


def _check(known: PipelineInput, listings: Listings) -> Iterator[Observation]:
    subject = f"input {known.name}"
    if not known.data.digest:
        yield wrong(subject, f"is not pinned: no step runs again when {known.data.url} changes", PIN)
    try:
        files = listings.files(known.data)
    except FAILURES as error:
        cause = error.__cause__
        if isinstance(cause, ListingError) and cause.refused:
            yield wrong(subject, f"cannot be read by you: {error}", CHECK)
        else:
            yield unknown(subject, f"was not compared with what is pinned: {error}", CHECK)
        return
    now = digest(files)
    if known.data.digest and now != known.data.digest:
        before = short_digest(known.data.digest)
        words = f"is not as pinned: {known.data.url} was {before} and is {short_digest(now)}"
        yield wrong(subject, words, PIN, "Pinned anew, the steps that read it run again")
    elif known.data.digest:
        yield fine(subject, f"is as pinned: {many(len(files), 'file')}")
