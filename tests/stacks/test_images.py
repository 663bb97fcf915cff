"""The image of ``run: auto``, from a registry on loopback."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from provisioner.errors import CloudError, UsageError
from provisioner.vocabulary import Engine
from provisioner.workload.spec import Workload
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
    assert tag_of(Engine.VLLM, "0.5") == "v0.5.0"


def test_a_line_whose_first_release_was_never_published_has_one_that_was():
    assert tag_of(Engine.SGLANG, "0.5") == "v0.5.12"
    assert tag_of(Engine.SGLANG, "0.5.9") == "v0.5.9"
    assert image_of_plan(("python3", "-m", "sglang.launch_server"), spec(), None, None) == "lmsysorg/sglang:v0.5.12"


def spec(**keys):
    document = {"version": 1, "name": "a", "task": "serve", "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}}
    return Workload.from_document(document | keys)


def test_a_plan_keeps_the_digest_of_its_version(registry):
    argv = ("vllm", "serve", "m")
    kept = f"vllm/vllm-openai:v0.19.0@sha256:{'d' * 64}"
    stated = spec(inference={"engine": "vllm@0.19"})
    assert image_of_plan(argv, stated, kept, registry) == kept
    assert image_of_plan(argv, stated, "vllm/vllm-openai:v0.18.0@sha256:x", registry).endswith(DIGEST)
    assert image_of_plan(argv, stated, "vllm/vllm-openai:v0.19.0", registry).endswith(DIGEST)
    assert image_of_plan(argv, spec(), None, None).startswith("vllm/vllm-openai:v0.")


TRAINING = {"method": "lora", "tokens": "10M", "sequence_tokens": 4096}


@pytest.mark.parametrize(
    ("keys", "argv", "why", "remedy"),
    [
        ({"model": {"id": "black-forest-labs/FLUX.1-dev"}}, (), "FLUX.1-dev runs in a library", "ComfyUI"),
        ({"model": {"id": "openai/whisper-large-v3"}}, (), "whisper-large-v3 runs in a library", "for speech vLLM"),
        ({"task": "finetune", "training": TRAINING}, ("torchrun",), "a finetune runs a program of its own", "command:"),
        ({"inference": {"engine": "llama.cpp"}}, ("llama-server",), "knows no image of llama.cpp", "plan"),
    ],
)
def test_what_auto_cannot_start_says_what_to_write(keys, argv, why, remedy):
    with pytest.raises(UsageError, match=why) as refused:
        image_of_plan(argv, spec(**keys), None, None)
    assert remedy in (refused.value.remedy or "")
    assert "run: {image: NAME@sha256" in (refused.value.remedy or "")
