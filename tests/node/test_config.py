"""The watcher's configuration out of user data."""

from __future__ import annotations

import pytest

from provisioner.node.boot import Start, user_data
from provisioner.node.config import config_of

CONFIG = {"idle_after_s": 900, "ports": [8000], "ready": {"path": "/health", "port": 8000}, "lease_s": None}


@pytest.mark.parametrize("start", [None, Start(argv=["serve"], env={"A": "\u00e9 ' \" \\"})])
def test_what_was_written_is_read_back(start):
    assert config_of(user_data(CONFIG, start)) == {key: value for key, value in CONFIG.items() if value is not None}


@pytest.mark.parametrize(
    "theirs",
    [
        "",
        "#!/bin/sh\necho hi\n",
        "#cloud-config\nruncmd: [ls]\n",
        "#cloud-config\n[]\n",
        '#cloud-config\n{"a": 1}\n',
        '#cloud-config\n{"write_files": [{"path": "/x", "content": "", "permissions": "0644"}], "runcmd": []}\n',
    ],
)
def test_somebody_elses_user_data_has_none(theirs):
    assert config_of(theirs) is None
