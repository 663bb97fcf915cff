"""The door to boto3: imported when it is first needed, explicit limits, settings and failures of the user's configuration."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.clouds.aws.session import AwsApi, filters, in_parallel
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.errors import Ambiguous, CredentialsError, Throttled
from stacks.clouds import open_cloud
from tests.fakes.aws_rules import ACCOUNT


def test_opening_a_cloud_imports_no_sdk():
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from stacks.clouds import open_cloud\n"
        "open_cloud('aws', Path('.'))\n"
        "assert not {'boto3', 'botocore'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_settings_come_from_the_specs_section(home):
    keys = {"profile": "team", "vpc": "vpc-1", "instance_profile": "gpu", "kms_key": "k", "image": "ami-1"}
    part = {**keys, "subnets": ["subnet-1"]}
    assert AwsSettings.of({**part, "account": "1"}) == AwsSettings(**keys, subnets=("subnet-1",))
    assert AwsSettings.of(None) == AwsSettings.of({}) == AwsSettings()
    assert open_cloud("aws", home, part).provider == "aws"


def test_limits_are_explicit(aws_rig):
    api = AwsApi(AwsSettings())
    once = api._client("ec2", "us-east-1", once=True).meta.config
    reads = api._client("ec2", "us-east-1", once=False).meta.config
    assert once.retries["total_max_attempts"] == 1
    assert reads.retries["total_max_attempts"] == 5
    assert (once.connect_timeout, reads.connect_timeout) == (5, 5)
    assert once.read_timeout > reads.read_timeout > 0
    assert "gpuprov" in reads.user_agent


def test_no_credentials_end_with_the_line_that_mends_them(aws_rig, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(CredentialsError, match="no AWS credentials") as failure:
        AwsCloud().list_objects()
    assert "aws sso login" in failure.value.remedy
    assert aws_rig.fake.calls == []


def test_an_unknown_profile_is_a_matter_of_credentials(aws_rig):
    with pytest.raises(CredentialsError, match="nobody") as failure:
        AwsCloud(AwsSettings(profile="nobody")).list_objects()
    assert failure.value.where == "your AWS configuration"
    assert "aws.profile" in failure.value.remedy


def test_p13_an_expired_sso_session_names_the_login(aws_rig, monkeypatch, tmp_path):
    config = tmp_path / "config"
    config.write_text(
        "[profile team]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = dev\nregion = us-east-1\n"
        "[sso-session corp]\nsso_start_url = https://corp.awsapps.com/start\nsso_region = us-east-1\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(CredentialsError) as failure:
        AwsCloud(AwsSettings(profile="team")).identity()
    assert failure.value.remedy == "run `aws sso login --profile team`"


def profile(monkeypatch, tmp_path, text):
    """A configuration whose profile ``team`` takes a role with the keys of ``base``."""
    config = tmp_path / "config"
    config.write_text(
        "[profile base]\naws_access_key_id = testing\naws_secret_access_key = testing\nregion = us-east-1\n"
        f"[profile team]\nregion = us-east-1\n{text}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    return AwsCloud(AwsSettings(profile="team"))


ROLE = "role_arn = arn:aws:iam::123456789012:role/dev\nsource_profile = base"


def test_a_role_that_may_not_be_taken_is_a_matter_of_credentials(aws_rig, monkeypatch, tmp_path):
    aws_rig.fake.inject("AssumeRole", "AccessDenied", message="not authorized to perform: sts:AssumeRole", times=9)
    with pytest.raises(CredentialsError, match="no credentials from AssumeRole: AccessDenied") as failure:
        profile(monkeypatch, tmp_path, ROLE).identity()
    assert "aws sts get-caller-identity --profile team" in failure.value.remedy
    assert "DescribeRegions" not in failure.value.remedy


def test_nobody_is_asked_for_an_mfa_code_and_the_session_of_the_aws_cli_is_used(aws_rig, monkeypatch, tmp_path):
    """The SDK reads a code from the terminal; a plugin would wait there for ever."""
    monkeypatch.setattr("getpass.getpass", lambda *_: pytest.fail("somebody was asked"))
    cloud = profile(monkeypatch, tmp_path, f"{ROLE}\nmfa_serial = arn:aws:iam::123456789012:mfa/ana")
    with pytest.raises(CredentialsError, match="MFA") as failure:
        cloud.identity()
    assert "aws sts get-caller-identity --profile team" in failure.value.remedy
    kept = {
        "Credentials": {
            "AccessKeyId": "kept-by-the-cli",
            "SecretAccessKey": "s",
            "SessionToken": "t",
            "Expiration": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
        }
    }
    monkeypatch.setattr("botocore.credentials.JSONFileCache.__contains__", lambda *_: True)
    monkeypatch.setattr("botocore.credentials.JSONFileCache.__getitem__", lambda *_: kept)
    assert "123456789012" in AwsCloud(AwsSettings(profile="team")).identity()
    assert aws_rig.fake.calls[-1].key == "kept-by-the-cli"


def test_an_address_that_is_none_is_a_matter_of_the_configuration(aws_rig, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "not an address")
    with pytest.raises(CredentialsError, match="Invalid endpoint") as failure:
        AwsCloud().identity()
    assert failure.value.where == "your AWS configuration"


@pytest.mark.parametrize("process", ["/nonexistent/tool", "echo no-json"])
def test_a_credential_process_that_fails_is_a_matter_of_credentials(aws_rig, monkeypatch, tmp_path, process):
    with pytest.raises(CredentialsError) as failure:
        profile(monkeypatch, tmp_path, f"credential_process = {process}").identity()
    assert "~/.aws/config" in failure.value.remedy


@pytest.mark.parametrize(("region", "kind"), [("us-esat-1", CredentialsError), ("us-east-1", Ambiguous)])
def test_a_wrong_region_is_told_from_a_lost_answer(aws_rig, monkeypatch, region, kind):
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    aws_rig.fake.inject("DescribeRegions", do="reset", times=9)
    with pytest.raises(kind) as failure:
        AwsCloud().list_objects()
    assert type(failure.value) is kind
    assert ("AWS_REGION" in failure.value.remedy) is (kind is CredentialsError)


def test_a_page_of_a_proxy_never_passes_for_an_empty_list(aws_rig, monkeypatch):
    """Nothing may be taken for gone, or be ended, by what somebody else has answered."""
    machine = aws_rig.running()
    page = b"<html><head><title>Log in</title></head><body><p>to the guest network</p></body></html>"
    monkeypatch.setattr(aws_rig.fake, "_answer", lambda *_: ("200 OK", [("Content-Type", "text/html")], page))
    with pytest.raises(Ambiguous, match="something other than EC2"):
        aws_rig.cloud.find_instances({"gpuprov:stack-id": "stack-0001"}, [aws_rig.here])
    with pytest.raises(Ambiguous, match="something other than EC2"):
        aws_rig.cloud.get_instance(machine.placement, machine.id)


def test_reads_are_repeated_by_the_sdk(aws_rig):
    aws_rig.fake.inject("DescribeRegions", "RequestLimitExceeded", times=2)
    assert aws_rig.cloud.list_objects() == []
    assert len(aws_rig.fake.of("DescribeRegions")) == 3


def test_parallel_work_keeps_its_order_and_fails_as_a_whole():
    assert in_parallel(lambda item: [item, item * 10], [3, 1, 2]) == [3, 30, 1, 10, 2, 20]
    assert in_parallel(lambda item: [item], []) == []

    def fail(item):
        if item == 2:
            raise Throttled("no")
        return [item]

    with pytest.raises(Throttled):
        in_parallel(fail, [1, 2, 3])


def test_filters_ask_for_our_own_only():
    assert filters({}) == [{"Name": "tag-key", "Values": ["gpuprov:stack-id"]}]
    assert filters({"gpuprov:stack-id": "a?"}, ("vpc-id", "v")) == [
        {"Name": "tag:gpuprov:stack-id", "Values": ["a\\?"]},
        {"Name": "vpc-id", "Values": ["v"]},
    ]


def test_another_account_than_the_stacks_is_asked_nothing(aws_rig):
    assert AwsCloud().account() == ACCOUNT
    own = AwsCloud(AwsSettings(account=ACCOUNT))
    own.list_objects()
    own.list_objects()
    assert len(aws_rig.fake.of("GetCallerIdentity")) == 2  # asked once and kept
    aws_rig.fake.calls.clear()
    other = AwsCloud(AwsSettings(account="210987654321"))
    for ask in (other.list_objects, lambda: other.get_instance(aws_rig.here, "i-1"), other.survey):
        with pytest.raises(CredentialsError, match=f"of account {ACCOUNT}, and this was made in account 210987654321"):
            ask()
    assert {call.operation for call in aws_rig.fake.calls} == {"GetCallerIdentity"}


def test_p13_a_new_login_works_without_a_restart(aws_rig, monkeypatch, tmp_path):
    credentials = tmp_path / "credentials"
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = testing\n"
    credentials.write_text(text.format("old"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    cloud = AwsCloud()
    aws_rig.fake.inject("*", "ExpiredToken", times=9)
    with pytest.raises(CredentialsError, match="ExpiredToken"):
        cloud.list_objects()
    aws_rig.fake.faults.clear()
    credentials.write_text(text.format("new"))
    before = len(aws_rig.fake.calls)
    assert cloud.list_objects() == []
    assert {call.key for call in aws_rig.fake.calls[before:]} == {"new"}
