"""The settings file of a stack."""

from __future__ import annotations

import pytest
import yaml

from provisioner.errors import UsageError
from stacks.workspace import configure


def test_other_settings_stay(tmp_path):
    path = tmp_path / "Pulumi.demo.yaml"
    path.write_text("encryptionsalt: v1:abc\nconfig: {other: x}\n")
    configure(tmp_path, "demo", "sandbox")
    expected = {"encryptionsalt": "v1:abc", "config": {"other": "x", "gpuprov:cloud": "sandbox"}}
    assert yaml.safe_load(path.read_text()) == expected


@pytest.mark.parametrize("content", [b"{bad", b"- a", b"config: 3", b"\xff\xfe\x00"])
def test_a_damaged_file_is_named_with_the_way_out(tmp_path, content):
    path = tmp_path / "Pulumi.demo.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is damaged") as caught:
        configure(tmp_path, "demo", "sandbox")
    assert caught.value.where == str(path)
    assert "remove" in (caught.value.remedy or "")
    assert path.read_bytes() == content
