"""Finds and recognises what is to be judged: a named file always, in a folder only what is surely ours."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path

from policies.facts import Subject
from policies.files import FILE_NAME, shown
from policies.json_source import JsonSource, read_json
from policies.placement import Placer
from provisioner.errors import GpuprovError, Position, SpecError, UsageError
from provisioner.records import record

EXPECTED = (
    "a workload spec, a saved plan (`gpuprov plan --format json`), `pulumi preview --json`, `pulumi stack export`, "
    "or `terraform show -json`"
)
JSON_BYTES_MAX = 256 * 2**20
"""Largest JSON document that is read; Terraform plans of thousands of resources have tens of megabytes."""
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv"})
_VERSION_LINE = re.compile(r"^[\"']?version[\"']?\s*:", re.MULTILINE)
_TASK_LINE = re.compile(r"^[\"']?task[\"']?\s*:", re.MULTILINE)
_PLAN_SCHEMA = re.compile(r'"schema"\s*:\s*"gpuprov\.plan/1"')
_HEAD_BYTES = 64 * 1024


@record(frozen=True, slots=True)
class Reading:
    """What was read: subjects, warnings of specs, files skipped in folders, and the errors of files that cannot be judged."""

    subjects: tuple[Subject, ...] = ()
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    skipped: int = 0
    errors: tuple[GpuprovError, ...] = field(default_factory=tuple)


def read_paths(paths: Sequence[Path], placer: Placer) -> Reading:
    """The subjects of all paths.

    Raises:
        UsageError: a path does not exist, or a folder holds nothing to judge.
    """
    files, skipped = _files(paths)
    subjects: list[Subject] = []
    warnings: list[str] = []
    errors: list[GpuprovError] = []
    for file in files:
        try:
            found, notes = read_file(file, placer)
        except GpuprovError as error:
            errors.append(error)
        else:
            subjects.extend(found)
            warnings.extend(notes)
    return Reading(tuple(subjects), tuple(shown(file) for file in files), tuple(warnings), skipped, tuple(errors))


def _files(paths: Sequence[Path]) -> tuple[list[Path], int]:
    found: dict[Path, Path] = {}
    skipped = 0
    for path in paths:
        if path.is_dir():
            inside = list(_walk(path))
            ours = [file for file in inside if is_ours(file)]
            skipped += len(inside) - len(ours)
            if not ours:
                raise UsageError(
                    f"{shown(path)} holds nothing to judge ({len(inside)} other files)",
                    where=Position(shown(path)),
                    remedy="name a file, or a folder with workload.yaml, *.workload.yaml, *.tfplan.json or a saved plan",
                )
        elif path.exists():
            ours = [path]
        else:
            raise UsageError(f"there is no {shown(path)}", where=Position(shown(path)), remedy="check the path")
        for file in ours:
            found.setdefault(file.resolve(), file)
    return list(found.values()), skipped


def _walk(folder: Path) -> Iterator[Path]:
    """Files below a folder in a stable order; hidden folders and those of package managers are left out."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            file = Path(root) / name
            if file.is_file():
                yield file


def is_ours(file: Path) -> bool:
    """Whether a file of a folder is one of those that the gate judges."""
    name = file.name
    if name in ("workload.yaml", "workload.yml") or name.endswith((".workload.yaml", ".workload.yml", ".tfplan.json")):
        return True
    if name == FILE_NAME:
        return False
    if file.suffix in (".yaml", ".yml"):
        return _is_spec(_text(file))
    return file.suffix == ".json" and _is_plan_json(file)


def _text(file: Path) -> str:
    """The text of a small file for a look at it; undecodable bytes do not matter here."""
    try:
        with file.open("rb") as stream:
            return stream.read(2**20).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _is_spec(text: str) -> bool:
    """Whether the top level of a YAML text has both ``version`` and ``task``; one that cannot be parsed counts by its lines."""
    if "version" not in text or "task" not in text:
        return False
    from provisioner.workload.tree import Branch
    from provisioner.workload.yaml_tree import YamlFault, read_yaml

    try:
        root = read_yaml(text)
    except YamlFault:
        return bool(_VERSION_LINE.search(text) and _TASK_LINE.search(text))
    return isinstance(root, Branch) and {"version", "task"} <= root.keys.keys()


def _is_plan_json(file: Path) -> bool:
    """Whether a JSON file is a saved plan or a Terraform plan; one of ours that cannot be parsed counts by its schema line."""
    from policies.facts_terraform import is_terraform

    try:
        with file.open("rb") as stream:
            head = stream.read(_HEAD_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return False
    if _PLAN_SCHEMA.search(head):
        return True
    if not any(word in head for word in ("resource_changes", "planned_values", "format_version")):
        return False
    try:
        document = read_json(shown(file), _decoded(file)).document
    except UsageError:
        return "terraform_version" in head
    return is_terraform(document)


def read_file(file: Path, placer: Placer) -> tuple[list[Subject], list[str]]:
    """The subjects of one file, and warnings on it.

    Raises:
        UsageError: the file cannot be read, or is nothing that the gate judges.
    """
    name = shown(file)
    if file.exists() and not file.is_file():
        # A pipe can be read once only, and one without a writer never ends.
        raise UsageError(
            f"{name} is no regular file", where=Position(name), remedy="save what it gives to a file and name that"
        )
    if _looks_like_json(file):
        return read_document(read_json(name, _decoded(file)), file, placer)
    from policies.facts_spec import spec_subjects

    content = _bytes(file, 2**20 + 1)
    try:
        subjects, loaded = spec_subjects(file, content, name, placer)
    except SpecError:
        _refuse_other_yaml(content, name)
        raise
    return subjects, [f"{name}: {warning}" for warning in loaded.warnings]


def _looks_like_json(file: Path) -> bool:
    """Whether a file is to be read as JSON: by its suffix, or because it begins like a JSON document that is no spec."""
    if file.suffix in (".yaml", ".yml"):
        return False
    if file.suffix in (".json", ".tfplan"):
        return True
    return _bytes(file, 256).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def read_document(source: JsonSource, file: Path, placer: Placer) -> tuple[list[Subject], list[str]]:
    """The subjects of a JSON document.

    Raises:
        UsageError: the document is nothing that the gate judges.
    """
    from policies.facts_plan import saved_plan_subjects
    from policies.facts_pulumi import is_pulumi, pulumi_subjects
    from policies.facts_terraform import is_terraform, terraform_subjects

    document = source.document
    if isinstance(document, dict) and document.get("schema") == "gpuprov.plan/1":
        return saved_plan_subjects(source, placer), []
    if isinstance(document, dict) and {"version", "task"} <= document.keys():
        from policies.facts_spec import spec_subjects

        subjects, loaded = spec_subjects(file, source.text.encode(), source.file, placer)
        return subjects, list(loaded.warnings)
    from policies.facts_others import project_of

    if is_terraform(document):
        subjects, count = terraform_subjects(source, placer, project_of(file))
    elif is_pulumi(document):
        subjects, count = pulumi_subjects(source, placer, project_of(file))
    else:
        what = (
            f"schema {document['schema']!r}"
            if isinstance(document, dict) and "schema" in document
            else "of no known form"
        )
        raise UsageError(f"this JSON document is {what}", where=Position(source.file), remedy=f"expected is {EXPECTED}")
    if subjects:
        return subjects, []
    if count == 0:
        return [], [f"{source.file}: nothing to judge: it makes and keeps no resource"]
    what = "its only resource is no" if count == 1 else f"none of its {count} resources is a"
    return [], [f"{source.file}: {what} machine, disk or firewall that the rules know"]


def _refuse_other_yaml(content: bytes, name: str) -> None:
    """Say what was expected where a YAML file is plainly something else; a spec with faults goes on to the spec's reader.

    Raises:
        UsageError: none of the top-level keys is one of a spec.
    """
    from provisioner.workload.spec import Workload
    from provisioner.workload.tree import Branch
    from provisioner.workload.yaml_tree import YamlFault, read_yaml

    try:
        root = read_yaml(content.decode("utf-8-sig"))
    except (UnicodeDecodeError, YamlFault):
        return
    if not isinstance(root, Branch) or root.keys.keys() & (
        Workload.model_fields.keys() - {"version", "name", "run", "tags"}
    ):
        return
    what = "a policy or waiver file" if root.keys.keys() & {"policy", "waivers"} else "no workload spec"
    raise UsageError(
        f"{name} is {what}: none of its keys is a spec's", where=Position(name), remedy=f"expected is {EXPECTED}"
    )


def _bytes(file: Path, most: int) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(most)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot read {shown(file)}: {reason}", where=Position(shown(file)), remedy="name a file that can be read"
        ) from None


def _decoded(file: Path) -> str:
    """The text of a JSON file.

    Raises:
        UsageError: it cannot be read, is too large, or is not UTF-8.
    """
    where = Position(shown(file))
    content = _bytes(file, JSON_BYTES_MAX + 1)
    if len(content) > JSON_BYTES_MAX:
        raise UsageError(
            f"{shown(file)} is larger than {JSON_BYTES_MAX // 2**20} MiB", where=where, remedy="is it the right file?"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8 (PowerShell's > writes UTF-16)"
        raise UsageError(f"{shown(file)} is not UTF-8 at byte {error.start}", where=where, remedy=hint) from None
