"""What a stack on AWS logs of traffic and accesses, where its settings ask for it."""

import pytest

from slipway.infra.clouds.aws.emulator import Emulator as AwsEmulator
from slipway.infra.settings.loading import load
from tests.support.clouds.aws import declare, logged, raw


@pytest.mark.slow
def test_the_emulated_cloud_has_an_answer_for_all_of_it() -> None:
    settings = load(raw(logged))
    emulator = AwsEmulator(settings.request)
    for resource in declare(settings).resources:
        if resource.type.startswith("aws:"):
            assert (emulator.outputs(resource.type, resource.name, resource.inputs) or {}).get("id")
