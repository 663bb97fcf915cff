"""Which backend, which passphrase, which environment."""

from __future__ import annotations

import multiprocessing
import stat

import pytest

from provisioner.errors import UsageError
from stacks.backend import PLUGIN, choose_backend, engine_environment, find_script, passphrase_file


def test_files_below_home_are_the_default(tmp_path):
    backend = choose_backend(
        tmp_path, None, {"PULUMI_BACKEND_URL": "s3://theirs", "PULUMI_CONFIG_PASSPHRASE": "theirs"}
    )
    assert backend.directory == tmp_path / "state"
    assert backend.url == f"file://{tmp_path}/state"
    assert backend.key == "local"
    assert "PULUMI_CONFIG_PASSPHRASE" not in backend.variables
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_the_passphrase_is_made_once_and_private(tmp_path):
    directory = tmp_path / "state"
    directory.mkdir()
    path = passphrase_file(directory)
    first = path.read_text()
    assert len(first) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert passphrase_file(directory).read_text() == first
    assert [p.name for p in directory.iterdir()] == ["passphrase"]


def test_many_first_users_agree_on_one_passphrase(tmp_path):
    directory = tmp_path / "state"
    directory.mkdir()
    with multiprocessing.get_context("fork").Pool(8) as pool:
        paths = pool.map(passphrase_file, [directory] * 40)
    assert {p.read_text() for p in paths} == {(directory / "passphrase").read_text()}
    assert [p.name for p in directory.iterdir()] == ["passphrase"]


def test_a_lost_passphrase_is_never_replaced(tmp_path):
    stacks = tmp_path / ".pulumi" / "stacks" / "gpuprov"
    stacks.mkdir(parents=True)
    (stacks / "demo.json").write_text("{}")
    with pytest.raises(UsageError, match="passphrase is gone"):
        passphrase_file(tmp_path)
    assert not (tmp_path / "passphrase").exists()


def test_a_remote_backend_needs_a_secrets_provider(tmp_path):
    with pytest.raises(UsageError, match="needs a secrets provider"):
        choose_backend(tmp_path, "s3://team-state", {})
    backend = choose_backend(tmp_path, "s3://team-state", {"GPUPROV_SECRETS_PROVIDER": "awskms://alias/x"})
    assert not backend.is_local
    assert backend.secrets_provider == "awskms://alias/x"
    assert not (tmp_path / "state").exists()


def test_the_option_comes_before_the_variable(tmp_path):
    environ = {"GPUPROV_BACKEND": "gs://variable", "GPUPROV_SECRETS_PROVIDER": "gcpkms://k"}
    assert choose_backend(tmp_path, None, environ).url == "gs://variable"
    assert choose_backend(tmp_path, "s3://option", environ).url == "s3://option"


def test_two_backends_share_no_file_names(tmp_path):
    environ = {"GPUPROV_SECRETS_PROVIDER": "gcpkms://k"}
    keys = {choose_backend(tmp_path, url, environ).key for url in ("gs://a", "gs://b", f"file://{tmp_path}/x", "local")}
    assert len(keys) == 4


def test_pulumi_variables_count_only_when_the_backend_says_so(tmp_path):
    environ = {
        "PULUMI_BACKEND_URL": "https://pulumi.example.com",
        "PULUMI_ACCESS_TOKEN": "token-of-somebody",
        "GPUPROV_SECRETS_PROVIDER": "default",
    }
    asked = choose_backend(tmp_path, "pulumi", environ)
    assert asked.url == "https://pulumi.example.com"
    assert asked.variables["PULUMI_ACCESS_TOKEN"] == "token-of-somebody"
    local = choose_backend(tmp_path, None, {**environ, "GPUPROV_SECRETS_PROVIDER": ""})
    assert "token-of-somebody" not in local.variables.values()
    assert choose_backend(tmp_path, "pulumi", {"GPUPROV_SECRETS_PROVIDER": "default"}).url == "https://api.pulumi.com"


@pytest.mark.parametrize("url", ["ftp://x", "state", "s3:/x", "s3"])
def test_an_unknown_backend_is_refused(tmp_path, url):
    with pytest.raises(UsageError, match="none that gpuprov knows"):
        choose_backend(tmp_path, url, {})


def test_an_unknown_secrets_provider_is_refused(tmp_path):
    with pytest.raises(UsageError, match="GPUPROV_SECRETS_PROVIDER is 'vault'"):
        choose_backend(tmp_path, "s3://b", {"GPUPROV_SECRETS_PROVIDER": "vault"})


def test_passphrase_as_provider_takes_the_callers(tmp_path):
    with pytest.raises(UsageError, match="there is none"):
        choose_backend(tmp_path, "s3://b", {"GPUPROV_SECRETS_PROVIDER": "passphrase"})
    environ = {"GPUPROV_SECRETS_PROVIDER": "passphrase", "PULUMI_CONFIG_PASSPHRASE": "open sesame"}
    assert choose_backend(tmp_path, "s3://b", environ).variables["PULUMI_CONFIG_PASSPHRASE"] == "open sesame"
    assert choose_backend(tmp_path, None, environ).variables["PULUMI_CONFIG_PASSPHRASE"] == "open sesame"


def test_the_engine_sees_no_foreign_pulumi_settings(tmp_path):
    environ = {
        "PATH": "/usr/bin",
        "HOME": "/home/ana",
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
        "PULUMI_STACK": "theirs",
        "PULUMI_ACCESS_TOKEN": "secret",
    }
    backend = choose_backend(tmp_path, None, environ)
    got = engine_environment(tmp_path, backend, "sandbox", environ)
    assert "PULUMI_IGNORE_AMBIENT_PLUGINS" not in got
    assert "PULUMI_STACK" not in got
    assert "secret" not in got.values()
    assert got["PULUMI_HOME"] == str(tmp_path / "pulumi")
    assert got["PULUMI_SKIP_UPDATE_CHECK"] == "true"
    assert got["GPUPROV_HOME"] == str(tmp_path)
    assert got["GPUPROV_CLOUD"] == "sandbox"
    assert got["PATH"].split(":")[0] == str(find_script(PLUGIN).parent)
    assert got["PATH"].endswith(":/usr/bin")
    assert got["HOME"] == "/home/ana"


def test_a_missing_script_is_named():
    with pytest.raises(UsageError, match="no-such-script is not installed"):
        find_script("no-such-script")
