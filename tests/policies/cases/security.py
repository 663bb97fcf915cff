"""Cases of the security rules."""

from __future__ import annotations

from policies.facts import UNKNOWN
from tests.policies.builders import firewall, gcp, machine, spec, volume
from tests.policies.cases.common import Cases, data, env, root

TOKEN = "hf_" + "Ab1" * 10
KEY_ID = "AKIA" + "ABCDEFGH23456789"
PINNED = "ghcr.io/team/serve@sha256:" + "0" * 64
SECURITY = {
    "open-cidr": Cases(
        passes=(
            spec(),
            spec({"access": {"cidrs": ["203.0.113.7/32", "10.0.0.0/8", "2001:db8::/48"]}}),
            firewall(("198.51.100.0/24", (443, 443))),
            firewall(("fd00::/8", None)),
        ),
        fails=(
            spec({"access": {"cidrs": ["0.0.0.0/0"]}}),
            spec({"access": {"cidrs": ["::/0"]}}),
            firewall(("0.0.0.0/0", (22, 22))),
            firewall(("10.0.0.0/8", None), ("0.0.0.0/1", None)),
            firewall(("128.0.0.0/1", None)),
        ),
        boundary=(firewall(("8.8.0.0/16", None)), firewall(("8.8.0.0/15", None))),
        unknowns=(
            spec(unknown=("access.cidrs",)),
            firewall((UNKNOWN, None)),
            firewall(("no range", None)),
            firewall(openings=UNKNOWN),
        ),
    ),
    "open-admin-port": Cases(
        passes=(
            firewall(("203.0.113.0/24", (443, 443))),
            firewall(("10.1.0.0/16", (22, 22))),
            firewall(("192.168.0.0/24", None)),
        ),
        fails=(
            firewall(("203.0.113.7/32", (22, 22))),
            firewall(("203.0.113.7/32", (0, 65535))),
            firewall(("203.0.113.7/32", None)),
        ),
        boundary=(firewall(("203.0.113.7/32", (23, 2374))), firewall(("203.0.113.7/32", (22, 2374)))),
        unknowns=(firewall((UNKNOWN, (22, 22))), firewall(("203.0.113.7/32", UNKNOWN)), firewall(openings=UNKNOWN)),
    ),
    "imdsv2": Cases(
        passes=(
            machine(),
            machine(metadata_endpoint="disabled", metadata_tokens=None),
            machine(metadata_endpoint="enabled"),
        ),
        fails=(
            machine(metadata_tokens="optional"),
            machine(metadata_tokens="optional", metadata_endpoint="enabled"),
            machine(metadata_tokens="Required"),
        ),
        boundary=(machine(metadata_tokens="required"), machine(metadata_tokens="optional")),
        unknowns=(machine(metadata_tokens=None), machine(metadata_tokens=UNKNOWN)),
    ),
    "imds-hop-limit": Cases(
        passes=(machine(), machine(metadata_hop_limit=2), machine(metadata_hop_limit=1, name="other")),
        fails=(machine(metadata_hop_limit=3), machine(metadata_hop_limit=10), machine(metadata_hop_limit=64)),
        boundary=(machine(metadata_hop_limit=2), machine(metadata_hop_limit=3)),
        unknowns=(machine(metadata_hop_limit=UNKNOWN),),
    ),
    "root-encryption": Cases(
        passes=(machine(), gcp(), machine(disks=(root(), data(encrypted=False)))),
        fails=(
            machine(disks=(root(encrypted=False),)),
            machine(disks=(data(), root(encrypted=False))),
            machine(disks=(root(encrypted=False, customer_key=False),)),
        ),
        boundary=(machine(disks=(root(encrypted=True),)), machine(disks=(root(encrypted=False),))),
        unknowns=(
            machine(disks=(root(encrypted=None),)),
            machine(disks=(root(encrypted=UNKNOWN),)),
            machine(disks=UNKNOWN),
        ),
    ),
    "data-encryption": Cases(
        passes=(machine(disks=(root(encrypted=False), data())), volume(), machine(disks=(root(), data(), data()))),
        fails=(
            volume(encrypted=False),
            machine(disks=(root(), data(encrypted=False))),
            machine(disks=(data(), data(encrypted=False))),
        ),
        boundary=(volume(encrypted=True), volume(encrypted=False)),
        unknowns=(volume(encrypted=UNKNOWN), volume(encrypted=None), machine(disks=UNKNOWN)),
    ),
    "customer-key": Cases(
        passes=(machine(), volume(), gcp()),
        fails=(
            machine(disks=(root(customer_key=False),)),
            volume(customer_key=False),
            machine(disks=(root(), data(customer_key=False))),
        ),
        boundary=(volume(customer_key=True), volume(customer_key=False)),
        unknowns=(volume(customer_key=UNKNOWN), machine(disks=UNKNOWN)),
    ),
    "secret-in-env": Cases(
        passes=(
            spec(env(HF_TOKEN={"secret": "aws-secretsmanager:hf"}, MODE="fast")),
            spec(env(MAX_TOKENS="4096", TOKENIZERS_PARALLELISM="false", TOKEN_FILE="/run/secrets/token")),
            spec({"run": {"image": PINNED, "command": ["serve", "--port", "8000"]}}),
        ),
        fails=(
            spec(env(HF_TOKEN=TOKEN)),
            spec(env(MODE=KEY_ID)),
            spec(env(DB_PASSWORD="correct horse battery")),
            spec({"run": {"image": PINNED, "command": ["serve", f"--token={TOKEN}"]}}),
            spec({"run": {"image": PINNED, "command": ["serve", "--api-key", "s3cr3t-value-1"]}}),
        ),
        boundary=(spec(env(API_KEY="12345")), spec(env(API_KEY="a12345"))),
        unknowns=(
            spec(env(HF_TOKEN="x"), unknown=("run.env.HF_TOKEN",)),
            spec(env(A="b"), unknown=("run",)),
            spec({"run": {"image": PINNED, "command": ["x"]}}, unknown=("run.command",)),
            spec(workload=UNKNOWN),
        ),
    ),
    "secret-in-user-data": Cases(
        passes=(
            machine(texts={"user_data": "#!/bin/sh\ndocker run -p 8000:8000 serve\n"}),
            gcp(texts={"startup-script": "export TOKEN=$(gcloud secrets versions access latest --secret=hf)"}),
            machine(texts={"user_data": "TOKEN_FILE=/run/secrets/hf"}),
        ),
        fails=(
            machine(texts={"user_data": f"export HF_TOKEN={TOKEN}"}),
            machine(texts={"user_data_base64": "ZXhwb3J0IEhGX1RPS0VOPWhmX0FiMUFiMUFiMUFiMUFiMUFiMUFiMQ=="}),
            gcp(texts={"ssh": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----"}),
            machine(texts={"user_data": "x"}, sensitive_texts=frozenset({"user_data"})),
        ),
        boundary=(
            machine(texts={"user_data": "PASSWORD=short"[:14]}),
            machine(texts={"user_data": "PASSWORD=longer1"}),
        ),
        unknowns=(machine(texts={"user_data": UNKNOWN}), machine(texts=UNKNOWN)),
    ),
    "secret-in-tags": Cases(
        passes=(spec(), machine(), spec(tags={"token-owner": "ana", "cost": "c42"})),
        fails=(
            spec(tags={"note": TOKEN}),
            machine(tags={"api-key": "s3cr3t-value-1"}),
            spec(tags={"x": KEY_ID}),
        ),
        boundary=(spec(tags={"password": "12345"}), spec(tags={"password": "a12345"})),
        unknowns=(machine(tags=UNKNOWN), machine(tags={"api_key": UNKNOWN})),
    ),
    "image-digest": Cases(
        passes=(
            spec({"run": {"image": PINNED}}),
            spec({"run": {"image": "vllm/vllm-openai:v0.19@sha256:" + "f" * 64}}),
            spec(env(A="b")),
        ),
        fails=tuple(
            spec({"run": {"image": image}}) for image in ("vllm/vllm-openai", "vllm/vllm-openai:v0.19", "x:latest")
        ),
        boundary=(spec({"run": {"image": "x@sha256:" + "a" * 64}}), spec({"run": {"image": "x@sha256:" + "a" * 63}})),
        unknowns=(spec({"run": {"image": "x"}}, unknown=("run.image",)), spec(unknown=("run",))),
    ),
    "image-version": Cases(
        passes=(
            spec({"run": {"image": "vllm/vllm-openai:v0.19"}}),
            spec({"run": {"image": PINNED}}),
            spec({"run": {"image": "registry.example.com:5000/x:1"}}),
            spec({"run": {"image": "x@sha256:" + "a" * 64}}),
        ),
        fails=tuple(
            spec({"run": {"image": image}}) for image in ("vllm/vllm-openai", "x:latest", "registry.example.com:5000/x")
        ),
        boundary=(spec({"run": {"image": "x:latest1"}}), spec({"run": {"image": "x:latest"}})),
        unknowns=(spec({"run": {"image": "x"}}, unknown=("run.image",)), spec(unknown=("run",))),
    ),
    "machine-image": Cases(
        passes=(machine(), gcp(), machine(image="ami-00000000000000001")),
        fails=(
            gcp(image="projects/deeplearning-platform-release/global/images/family/pytorch"),
            machine(image="resolve:ssm:/aws/service/deeplearning/ami"),
            gcp(image="pytorch-latest"),
        ),
        boundary=(gcp(image="projects/p/global/images/one"), gcp(image="projects/p/global/images/family/one")),
        unknowns=(machine(image=UNKNOWN),),
    ),
    "public-ip": Cases(
        passes=(machine(), gcp(), machine(public_ip=False, name="other")),
        fails=(machine(public_ip=True), gcp(public_ip=True), machine(public_ip=True, name="other")),
        boundary=(machine(public_ip=False), machine(public_ip=True)),
        unknowns=(machine(public_ip=UNKNOWN),),
    ),
    "broad-scopes": Cases(
        passes=(
            gcp(),
            gcp(scopes=("cloud-platform",)),
            gcp(service_account=None, scopes=("https://www.googleapis.com/auth/logging.write",)),
        ),
        fails=(
            gcp(service_account=None, scopes=("cloud-platform",)),
            gcp(
                service_account="123-compute@developer.gserviceaccount.com",
                scopes=("https://www.googleapis.com/auth/cloud-platform",),
            ),
            gcp(service_account=None, scopes=("logging-write", "cloud-platform")),
        ),
        boundary=(
            gcp(service_account="a-compute@developer.gserviceaccount.com", scopes=("cloud-platform",)),
            gcp(service_account="1-compute@developer.gserviceaccount.com", scopes=("cloud-platform",)),
        ),
        unknowns=(gcp(scopes=UNKNOWN), gcp(service_account=UNKNOWN)),
    ),
    "model-revision": Cases(
        passes=tuple(spec({"model.source": f"hf://a/b@{commit * 40}"}) for commit in ("a", "0", "9")),
        fails=tuple(spec({"model.source": f"hf://a/b{end}"}) for end in ("", "@main", "@v1.0")),
        boundary=(spec({"model.source": "hf://a/b@" + "a" * 40}), spec({"model.source": "hf://a/b@" + "a" * 39})),
        unknowns=(spec(unknown=("model.source",)),),
    ),
}
