"""Lines of the watcher among those of others."""

from __future__ import annotations

import pytest

from provisioner.reaper.console import said


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"gpuprov": 1, "state": "ready"}', {"gpuprov": 1, "state": "ready"}),
        ('[  12.3] node[7]: {"gpuprov": 1, "state": "idle"}', {"gpuprov": 1, "state": "idle"}),
        ('{"gpuprov": 1, "sta', None),
        ('{"other": 1}', None),
        ("", None),
    ],
)
def test_a_line_is_the_watchers_or_none(line, found):
    assert said(line) == found
