"""The image of ``run: auto``, from a registry on loopback."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from provisioner.errors import CloudError, UsageError
from provisioner.vocabulary import Engine
from stacks.images import Registry, engine_image, image_of_plan, tag_of

DIGEST = "sha256:" + "c" * 64


@pytest.fixture
def registry():
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def do_GET(self):
            is_known = self.path.endswith(("scope=repository:vllm/vllm-openai:pull", "/manifests/v0.19.0"))
            self.send_response(200 if is_known else 404)
            if "/manifests/" in self.path and self.headers["Authorization"] == "Bearer t":
                self.send_header("Docker-Content-Digest", DIGEST)
            self.end_headers()
            self.wfile.write(json.dumps({"token": "t"}).encode())

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    yield Registry(base, f"{base}/token?service=x")
    server.shutdown()
    server.server_close()


def test_a_tag_becomes_a_digest(registry):
    assert engine_image(Engine.VLLM, "0.19", registry) == f"vllm/vllm-openai:v0.19.0@{DIGEST}"


def test_a_tag_that_is_not_there_is_an_error_with_a_way_out(registry):
    with pytest.raises(CloudError, match=r"v9\.9\.0") as raised:
        engine_image(Engine.VLLM, "9.9", registry)
    assert "run:" in raised.value.remedy


def test_a_registry_that_is_down_is_an_error():
    with pytest.raises(CloudError):
        engine_image(Engine.SGLANG, "0.5", Registry("http://127.0.0.1:9", None))


def test_the_sandbox_keeps_the_tag_and_an_engine_without_an_image_is_refused():
    assert engine_image(Engine.VLLM, "0.19.1", None) == "vllm/vllm-openai:v0.19.1"
    with pytest.raises(UsageError, match="knows no image of diffusers"):
        engine_image(Engine.DIFFUSERS, "1", None)
    assert tag_of("0.5") == "v0.5.0"


def test_a_plan_keeps_the_digest_of_its_version(registry):
    argv = ("vllm", "serve", "m")
    kept = f"vllm/vllm-openai:v0.19.0@sha256:{'d' * 64}"
    assert image_of_plan(argv, "0.19", kept, registry) == kept
    assert image_of_plan(argv, "0.19", "vllm/vllm-openai:v0.18.0@sha256:x", registry).endswith(DIGEST)
    assert image_of_plan(argv, "0.19", "vllm/vllm-openai:v0.19.0", registry).endswith(DIGEST)
    assert image_of_plan(argv, None, None, None).startswith("vllm/vllm-openai:v0.")
    with pytest.raises(UsageError, match="has no command"):
        image_of_plan((), None, None, None)
