"""Images by GPU generation: a driver for each, looked up once a region, never guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.clouds.aws.images import Images
from provisioner.errors import NotFound, Rejected
from tests.fakes import aws_rules

OPEN = "base-oss-nvidia-driver-gpu-ubuntu-24.04"


@pytest.fixture
def images(make_images):
    return make_images()


@pytest.fixture
def make_images():
    from provisioner.catalog.snapshot import load_catalog

    return lambda: Images(None, None, load_catalog)


@pytest.mark.parametrize(
    ("instance_type", "first"),
    [
        ("g4dn.xlarge", OPEN),
        ("g5.xlarge", OPEN),
        ("g6e.12xlarge", OPEN),
        ("p5.48xlarge", OPEN),
        ("p6-b200.48xlarge", OPEN),
        ("g5g.xlarge", "arm64/base-oss-nvidia-driver-gpu-ubuntu-24.04"),
        ("p3.2xlarge", "Deep Learning Base Proprietary"),
    ],
)
def test_each_generation_gets_an_image_with_its_driver(images, instance_type, first):
    assert first in next(images.selectors(instance_type)).selector


@pytest.mark.parametrize(
    "instance_type", ["g6f.large", "g4ad.xlarge", "trn1.2xlarge", "m7i.large", "p2.xlarge", "no.such"]
)
def test_what_no_image_is_known_for_gets_none(images, instance_type):
    assert list(images.selectors(instance_type)) == []


def test_volta_never_gets_open_kernel_modules_and_hopper_never_the_proprietary_ones(images):
    assert all("OSS" not in selector.image for selector in images.selectors("p3.2xlarge"))
    assert all("OSS" in selector.image for selector in images.selectors("p5.48xlarge"))


def test_an_image_is_looked_up_once_a_region(aws_rig):
    kinds = ("g6.xlarge", "g5.xlarge", "p5.48xlarge")
    found = {aws_rig.cloud.resolve_image(replace(aws_rig.here, instance_type=kind)) for kind in kinds}
    assert found == {aws_rules.IMAGE}
    (call,) = aws_rig.fake.of("GetParameter")
    assert call.parameters["Name"].startswith("/aws/service/deeplearning/ami/x86_64/")


def test_an_older_generation_is_found_by_name_and_starts_from_its_own_root(aws_rig):
    place = replace(aws_rig.here, instance_type="p3dn.24xlarge")
    image = aws_rig.cloud.resolve_image(place)
    assert image == aws_rules.OLD_IMAGE
    aws_rig.cloud.create_instance(aws_rig.request(placement=place, image=image))
    assert aws_rig.fake.of("RunInstances")[0].parameters["BlockDeviceMapping.1.DeviceName"] == "/dev/xvda"


def test_a_region_without_any_of_them_says_which_were_tried(aws_rig):
    aws_rig.fake.inject("GetParameter", "ParameterNotFound", times=99)
    for image in list(aws_rules.backend("us-east-1").amis.values()):
        image.state = "deregistered"
    with pytest.raises(NotFound, match=OPEN):
        aws_rig.cloud.resolve_image(aws_rig.here)


def test_no_image_names_the_way_out(aws_rig):
    with pytest.raises(Rejected, match=r"no Deep Learning AMI is known for g6f\.large") as refusal:
        aws_rig.cloud.resolve_image(replace(aws_rig.here, instance_type="g6f.large"))
    assert "aws.image" in refusal.value.remedy
