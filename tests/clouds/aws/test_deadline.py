"""An endpoint that hangs, or lets its answer drip, holds a call for a time that is told, and no longer."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from provisioner.clouds.aws import session
from provisioner.clouds.aws.deadline import Overdue, within
from provisioner.clouds.aws.session import AwsApi
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.errors import Ambiguous

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\nContent-Length: 1000000\r\n\r\n"


class Holding:
    """Accepts every connection and never answers in full; with ``drips`` a byte comes now and then."""

    def __init__(self, *, drips: bool) -> None:
        self.drips = drips
        self.connections = 0
        self._open: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed: the test is over
            while True:
                connection, _ = self._server.accept()
                self.connections += 1
                self._open.append(connection)
                if self.drips:
                    self._threads.append(threading.Thread(target=self._drip, args=(connection,), daemon=True))
                    self._threads[-1].start()

    def _drip(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(HEAD)
            while True:
                connection.sendall(b" ")
                time.sleep(0.02)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for connection in self._open:
            with contextlib.suppress(OSError):  # the other side was first
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._server, *self._open):
            one.close()


@pytest.fixture(params=[False, True], ids=["never answers", "drips"])
def holding(request, aws_rig, monkeypatch):
    server = Holding(drips=request.param)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setattr(session, "ANSWER_MAX_S", 0.5)
    monkeypatch.setattr(session, "LAUNCH_ANSWER_MAX_S", 0.5)
    yield server
    server.close()


def test_a_reading_ends_in_time_with_the_next_step(holding):
    api = AwsApi(AwsSettings())
    for ask in (
        lambda: api.call("ec2", "DescribeInstances", "us-east-1"),
        lambda: api.pages("ec2", "DescribeVolumes", "us-east-1", "Volumes"),
        api.account,
    ):
        with pytest.raises(Ambiguous, match=r"no answer from AWS: no whole answer within 0\.5 s") as failure:
            ask()
        assert failure.value.exit_code == 4
        assert "check the network and proxy" in failure.value.remedy
        assert "in us-east-1" in failure.value.where


def test_a_create_call_goes_out_once(holding):
    api = AwsApi(AwsSettings())
    with pytest.raises(Ambiguous, match="no whole answer"):
        api.call("ec2", "RunInstances", "us-east-1", once=True, ImageId="ami-1", MinCount=1, MaxCount=1)
    assert holding.connections == 1


@pytest.mark.parametrize("holding", [False], indirect=True, ids=["never answers"])
def test_a_create_call_that_the_sdk_gives_up_is_not_made_again_by_it(holding, monkeypatch):
    monkeypatch.setattr(session, "LAUNCH_ANSWER_MAX_S", 30.0)
    monkeypatch.setattr(session, "_LAUNCH_READ_TIMEOUT_S", 0.1)
    with pytest.raises(Ambiguous, match="no answer from AWS"):
        AwsApi(AwsSettings()).call("ec2", "RunInstances", "us-east-1", once=True, ImageId="a", MinCount=1, MaxCount=1)
    assert holding.connections == 1


def test_an_answer_and_a_failure_in_time_pass_as_they_are():
    assert within(30.0, lambda: [1]) == [1]
    with pytest.raises(KeyError, match="mine"):
        within(30.0, lambda: {}["mine"])
    held = threading.Event()
    with pytest.raises(Overdue, match=r"no whole answer within 0\.05 s"):
        within(0.05, held.wait)
    held.set()
