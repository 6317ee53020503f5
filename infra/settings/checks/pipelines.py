"""What a pipeline is told about its data and its training."""

import math
from collections.abc import Iterator

from infra.schema.findings import Finding, Path
from infra.settings.parsing import MnistDraft, Reading


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about data set and learning rates."""
    mnist = reading.draft.pipelines.mnist
    if mnist is not None:
        yield from _dataset(mnist)
        yield from _learning_rates(mnist)


def _dataset(mnist: MnistDraft) -> Iterator[Finding]:
    place: Path = ("pipelines", "mnist", "dataset", "source")
    read = (("pipelines", "mnist", "dataset", "name"),)
    if mnist.dataset.name == "idx" and mnist.dataset.source is None:
        yield Finding(
            place,
            None,
            "the data set is a folder of IDX files, and which is not said",
            "write its path in the store, such as `uploads/mnist`",
            read=read,
        )
    elif mnist.dataset.name != "idx" and mnist.dataset.source is not None:
        yield Finding(
            place,
            mnist.dataset.source,
            f"`{mnist.dataset.name}` is not read from a folder",
            "remove it, or write `name: idx`",
            read=read,
        )


def _learning_rates(mnist: MnistDraft) -> Iterator[Finding]:
    place: Path = ("pipelines", "mnist", "learning_rates")
    rates = mnist.learning_rates
    if 0 not in rates:
        yield Finding(
            place,
            {str(epoch): rate for epoch, rate in rates.items()},
            "no rate for the first epoch, which is 0",
            "add one, such as `0: 0.001`",
            all_of=(place,),
        )
    for epoch, rate in rates.items():
        if epoch < 0:
            yield Finding((*place, str(epoch)), epoch, "epochs are counted from 0", "write 0 or more")
        elif not (math.isfinite(rate) and rate > 0):
            yield Finding((*place, str(epoch)), rate, "not above zero", "write a rate such as `0.001`")
