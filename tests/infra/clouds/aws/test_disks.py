"""Disks for the services of pipelines on EKS, which has none by itself."""

from dataclasses import replace

import pytest

from infra.clouds.aws.emulator import Emulator as AwsEmulator
from infra.clouds.aws.platforms import platforms
from infra.settings.loading import load
from tests.support.aws import ADDON, ASSOCIATION, ATTACHMENT, declare, raw
from tests.support.recording import Recording, record

CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"


def with_services() -> Recording:
    request = replace(load(raw()).request, has_services=True)
    return record(lambda: platforms(request), {}, preview=False, emulators=[AwsEmulator(request)])


def test_a_stack_with_services_brings_the_driver_of_disks_and_their_class() -> None:
    recording = with_services()
    addon = next(each for each in recording.of(ADDON) if each.inputs["addonName"] == "aws-ebs-csi-driver")
    made = recording.one(CLASS)
    assert made.inputs["provisioner"] == "ebs.csi.aws.com"
    assert made.inputs["parameters"] == {"type": "gp3", "encrypted": "true"}
    assert made.inputs["volumeBindingMode"] == "WaitForFirstConsumer"
    assert addon.urn in made.dependencies
    assert recording.result["dev"].volume_class == made.inputs["metadata"]["name"]


@pytest.mark.slow
def test_the_driver_alone_may_create_disks() -> None:
    recording = with_services()
    (attached,) = [each for each in recording.of(ATTACHMENT) if "EBSCSI" in each.inputs["policyArn"]]
    assert attached.inputs["policyArn"] == "arn:aws:iam::aws:policy/service-role/AmazonEBSCSIDriverPolicy"
    accounts = {each.inputs["serviceAccount"] for each in recording.of(ASSOCIATION)}
    assert "ebs-csi-controller-sa" in accounts


def test_a_stack_without_services_has_neither() -> None:
    recording = declare(load(raw()))
    assert recording.of(CLASS) == []
    assert "aws-ebs-csi-driver" not in {each.inputs["addonName"] for each in recording.of(ADDON)}
    assert recording.result["dev"].volume_class is None
