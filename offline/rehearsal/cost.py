"""What the run that was rehearsed would cost on its cloud."""

from collections.abc import Mapping, Sequence
from datetime import date

from infra.review.contract import reviewed
from infra.review.resource import Resource
from infra.review.stack import Stack
from offline.engine.emulators import emulators
from offline.engine.scheduling import pool_of_nodes
from offline.preview.cost import cost
from offline.preview.evaluated_stack import reviews
from offline.preview.job_durations import Measured
from offline.preview.model import Cost
from offline.rehearsal.job_records import JobRecord
from offline.rehearsal.outcome import Configuration


def priced(
    stack: str, resources: Mapping[str, Resource], configuration: Configuration, records: Sequence[JobRecord]
) -> Cost:
    """The stack's cost at list prices, as a preview has it, with the times that its Jobs took here."""
    declared = reviewed(
        Stack(
            name=stack,
            resources=resources,
            configuration=configuration.values,
            pools=[
                pool_of_nodes(node) for each in emulators(configuration.settings) for node in each.standing_nodes()
            ],
        ),
        reviews(),
    )
    took = {each.name: Measured(each.seconds, "rehearsed") for each in records if each.phase.good and each.seconds}
    return cost(declared, today=date.today(), measured=took)
