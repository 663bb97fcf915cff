"""Reads what is to be judged: recognises each file by what it holds, and gives its subjects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from policies.facts import Subject
from policies.files import shown
from policies.folders import find_files
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


@record(frozen=True, slots=True)
class Reading:
    """What was read: subjects, warnings of specs, what was passed over in folders, and the errors of files that cannot be judged."""

    subjects: tuple[Subject, ...] = ()
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    skipped: int = 0
    left_out: tuple[str, ...] = ()
    errors: tuple[GpuprovError, ...] = field(default_factory=tuple)


def read_paths(paths: Sequence[Path], placer: Placer) -> Reading:
    """The subjects of all paths.

    Raises:
        UsageError: a path does not exist, or a folder holds nothing to judge.
    """
    found_files = find_files(paths)
    subjects: list[Subject] = []
    warnings: list[str] = []
    errors: list[GpuprovError] = []
    for file in found_files.ours:
        try:
            found, notes = read_file(file, placer)
        except GpuprovError as error:
            errors.append(error)
        else:
            subjects.extend(found)
            warnings.extend(notes)
    return Reading(
        tuple(subjects),
        tuple(shown(file) for file in found_files.ours),
        tuple(warnings),
        found_files.skipped,
        found_files.left_out,
        tuple(errors),
    )


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
    suffix = file.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return False
    if suffix in (".json", ".tfplan"):
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
