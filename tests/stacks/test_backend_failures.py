"""What the engine prints about a backend that it cannot use, and which error that is."""

from __future__ import annotations

import pytest

from stacks.backend_failures import explain, last_error

URL = "s3://team-state"
LISTING = "error listing stacks: could not list bucket: blob (code=Unknown): operation error S3: ListObjectsV2, "


@pytest.mark.parametrize(
    ("said", "code", "fix"),
    [
        (f"{LISTING}https response error StatusCode: 404, RequestID: r, HostID: h, NoSuchBucket: no", 2, "make the bucket"),
        (f"{LISTING}https response error StatusCode: 403, RequestID: r, HostID: h, api error AccessDenied: no", 3, "the right"),
        (f"{LISTING}get identity: get credentials: failed to refresh cached credentials, no EC2 IMDS role found", 3, "log in"),
        (f"{LISTING}https response error StatusCode: 403, RequestID: r, api error ExpiredToken: old", 3, "log in"),
        ("getting secrets manager: passphrase must be set with PULUMI_CONFIG_PASSPHRASE", 2, "PULUMI_CONFIG_PASSPHRASE"),
        ("failed to load checkpoint: unsupported checkpoint version 99", 4, "version of gpuprov"),
        ("constructing secrets manager of type passphrase: incorrect passphrase", 2, "PULUMI_CONFIG_PASSPHRASE"),
    ],
)  # fmt: skip
def test_each_trouble_has_its_code_and_its_fix(said, code, fix):
    error = explain(said, URL)
    assert error is not None
    assert (error.exit_code, error.where) == (code, URL)
    assert fix in error.remedy
    assert "RequestID" not in error.message
    assert "HostID" not in error.message


def test_other_failures_are_not_about_the_backend():
    assert explain("update failed: resource gpuprov:index:GpuInstance", URL) is None
    assert last_error("\n code: 1\n stdout: \n stderr: error: it broke\n") == "it broke"
