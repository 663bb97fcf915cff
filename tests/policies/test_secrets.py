"""Secrets: recognised by shape and by name, packed or not, and shown by no report."""

from __future__ import annotations

import base64
import gzip
import json
import random
import string
from datetime import date
from pathlib import Path

import pytest

from policies.formats.github import summary
from policies.formats.render import MODULES, render
from policies.formats.report import Report
from policies.run import Order, run_check
from policies.secrets import REDACTED, find_secret, find_secret_in_text, find_shape, names_a_secret, redact
from tests.policies.builders import catalog, document

TODAY = date(2026, 11, 30)
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\ndef\n-----END RSA PRIVATE KEY-----"
SHAPED = (
    "hf_" + "aB3" * 8,
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9,
    "glpat-" + "a1B2c3D4e5F6g7H8i9J0",
    "sk-ant-" + "a1" * 20,
    "AIza" + "Sy" * 17 + "a",
    "xoxb-1234567890-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk",
    "postgres://user:hunter22@db.example.com/x",
    KEY,
)


@pytest.mark.parametrize("secret", SHAPED)
def test_known_shapes_are_found_and_redacted(secret: str) -> None:
    text = f"before {secret} after"
    assert find_shape(text)
    shown = redact(text)
    assert secret not in shown
    assert REDACTED in shown
    assert shown.startswith("before ")


@pytest.mark.parametrize("secret", SHAPED)
def test_packing_hides_nothing(secret: str) -> None:
    script = f"#!/bin/sh\nexport X='{secret}'\n".encode()
    assert find_secret_in_text(base64.b64encode(script).decode())
    assert find_secret_in_text(base64.b64encode(gzip.compress(script)).decode())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("vllm serve x --api-key s3cr3tvalue99 --port 8000", "s3cr3tvalue99"),
        ("login --password 'two words 11' host", "two words 11"),
        ("serve --client-secret=abcdef123456", "abcdef123456"),
        ('curl -H "Authorization: Bearer abc123def456ghi789" http://x', "abc123def456ghi789"),
    ],
)
def test_flags_and_headers_of_a_command_line_are_read(text: str, value: str) -> None:
    found = find_secret_in_text(text)
    assert found is not None
    assert value not in redact(text, found.values)
    assert value not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "HF_TOKEN=$(gcloud secrets versions access latest --secret=hf-token-prod)",
        "gcloud secrets versions access latest --secret hf-token-prod",
        "aws secretsmanager get-secret-value --secret-id prod/hf-token --query SecretString",
        "echo $PW | docker login --username ana --password-stdin registry.example.com",
        "docker build --secret id=hf,src=/run/secrets/hf .",
        "serve --api-key $API_KEY --hf-token ${HF_TOKEN} --max-tokens 40960000",
        'curl -H "Authorization: Bearer $TOKEN" http://x',
        "serve --api-key --port 8000",
        "the bearer of-this-long-message",
    ],
)
def test_references_on_a_command_line_are_no_secrets(text: str) -> None:
    assert find_secret_in_text(text) is None


@pytest.mark.parametrize("secret", SHAPED)
@pytest.mark.parametrize(
    "frame",
    [
        "#!/bin/sh\necho {} | base64 -d > /etc/env\n",
        "#cloud-config\nwrite_files:\n- encoding: b64\n  path: /etc/env\n  content: {}\n",
        "--x\nContent-Transfer-Encoding: base64\n\n{}\n--x--\n",
    ],
)
def test_a_packed_part_of_a_script_is_opened_and_hidden(secret: str, frame: str) -> None:
    packed = base64.encodebytes(f"export X='{secret}'\n".encode()).decode().strip()
    if "Transfer" not in frame:
        packed = packed.replace("\n", "")
    text = frame.format(packed)
    found = find_secret_in_text(text)
    assert found is not None
    shown = redact(text, found.values)
    assert packed.splitlines()[0] not in shown
    assert frame.splitlines()[0] in shown


@pytest.mark.parametrize(
    "harmless",
    [
        base64.b64encode(b"#!/bin/sh\nexport HF_HOME=/data/models\n").decode(),
        "a3f5" * 16,
        "/opt/nvidia/nsight/systems/target/linux/desktop/glibc",
    ],
)
def test_what_is_packed_or_looks_it_without_a_secret_passes(harmless: str) -> None:
    assert find_secret_in_text(f"#!/bin/sh\necho {harmless}\n") is None


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("hfToken", True),
        ("DB_PASSWORD", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("api-key", True),
        ("OPENAI_API_KEY", True),
        ("MAX_TOKENS", False),
        ("EOS_TOKEN", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("TOKEN_FILE", False),
        ("time_to_first_token", False),
        ("AWS_ACCESS_KEY_ID", False),
        ("KEYBOARD", False),
    ],
)
def test_names_that_promise_a_secret(name: str, secret: bool) -> None:
    assert names_a_secret(name) is secret


@pytest.mark.parametrize(
    "value",
    [
        "",
        "true",
        "4096",
        "500ms",
        "${HF_TOKEN}",
        "$TOKEN",
        "<your token>",
        "xxxxxxxx",
        "{{ token }}",
        "[redacted]",
        "auto",
    ],
)
def test_references_flags_and_numbers_are_no_secrets(value: str) -> None:
    assert find_secret("HF_TOKEN", value) is None


def test_damaged_packing_is_no_crash() -> None:
    for text in ("H4sIAAAAAAAA" * 4, "A" * 17, "=" * 20, base64.b64encode(b"\x1f\x8b\x08garbage").decode()):
        find_secret_in_text(text)


def test_a_bomb_is_unpacked_only_so_far() -> None:
    bomb = base64.b64encode(gzip.compress(b"\0" * 2**24)).decode()
    assert find_secret_in_text(bomb) is None


def canaries() -> list[tuple[str, str, str]]:
    """Name, value and place of fifty secrets that must never be seen again."""
    dice = random.Random(17)
    alphabet = string.ascii_letters + string.digits
    made = []
    for number in range(50):
        tail = "".join(dice.choice(alphabet) for _ in range(24))
        value = dice.choice([f"hf_{tail}", f"AKIA{tail.upper()[:16]}", tail, f"ghp_{tail}", f"sk-{tail}"])
        made.append(
            (
                dice.choice(["HF_TOKEN", "API_KEY", "DB_PASSWORD"]),
                value,
                ["env", "command", "tag", "terraform", "packed", "block", "broken"][number % 7],
            )
        )
    return made


def files_with(name: str, value: str, place: str) -> dict[str, str]:
    if place == "env":
        return {
            "workload.yaml": json.dumps(
                document({"run": {"image": "x", "env": {name: value}}, "access": {"cidrs": ["0.0.0.0/0"]}}), indent=1
            )
        }
    if place == "command":
        run = {"image": "x", "command": ["serve", f"--{name.lower().replace('_', '-')}={value}"]}
        return {"workload.yaml": json.dumps(document({"run": run}), indent=1)}
    if place == "tag":
        return {"workload.yaml": json.dumps(document({"tags": {name: value}}), indent=1)}
    if place == "broken":
        return {"workload.yaml": json.dumps(document({"run": {"image": "x", "env": {name: [value]}}}), indent=1)}
    if place == "block":
        lines = [f"    {name}: |", f"      first-{value[:4]}", f"      {value}", "access: {cidrs: [0.0.0.0/0]}"]
        return {"workload.yaml": "\n".join([*_block_style(), "run:", "  image: x", "  env:", *lines])}
    after = {"instance_type": "g6.xlarge", "user_data": f"#!/bin/sh\nexport {name}={value}\n", "tags": {name: value}}
    change = {
        "address": "aws_instance.a",
        "mode": "managed",
        "type": "aws_instance",
        "change": {"actions": ["create"], "after": after},
    }
    return {"tfplan.json": json.dumps({"format_version": "1.2", "resource_changes": [change]}, indent=1)}


def _block_style() -> list[str]:
    return ["version: 1", "name: chat", "task: serve", "model: {id: meta-llama/Llama-3.1-8B-Instruct}"]


@pytest.mark.parametrize(("name", "value", "place"), canaries())
def test_x6_no_report_and_no_error_shows_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, place: str
) -> None:
    from provisioner.errors import GpuprovError

    monkeypatch.chdir(tmp_path)
    for file, text in files_with(name, value, place).items():
        (tmp_path / file).write_text(text)
    order = Order(tuple(Path(file) for file in files_with(name, value, place)))
    if place == "broken":
        with pytest.raises(GpuprovError) as found:
            run_check(order, catalog(), today=TODAY)
        assert value not in str(found.value)
        return
    checked = run_check(order, catalog(), today=TODAY)
    packed = [text for text in files_with(name, value, place).values() if place == "packed"]
    hidden = [value] + [json.loads(text)["resource_changes"][0]["change"]["after"]["user_data"] for text in packed]
    verdict = checked.report.verdict
    assert any(finding.rule.id.startswith("secret-in-") for finding in verdict.violations)
    outputs = [render(checked.report, form) for form in MODULES] + [summary(checked.report), str(verdict.error())]
    assert all(secret not in output for output in outputs for secret in hidden)


def test_the_excerpt_hides_the_lines_of_a_private_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from policies.facts import Source
    from policies.gate import judge
    from policies.selection import Policy
    from provisioner.errors import Position
    from tests.policies.builders import machine

    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text(f"a\nb\n{KEY}\nc\n")
    subject = machine(
        texts={"user_data": KEY}, path="t.json", source=Source.TERRAFORM, locate=lambda _: Position("t.json", 4, 1)
    )
    text = render(Report(judge([subject], Policy(), TODAY)), "text")
    assert "MIIEabc" not in text
    assert "def" not in text.replace("default", "")
