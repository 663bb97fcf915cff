"""What `gpuprov init` writes: valid without a warning, for any model id."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.errors import UsageError
from provisioner.vocabulary import Task
from provisioner.workload.load import parse
from provisioner.workload.patterns import NAME
from provisioner.workload.template import DEFAULT_MODELS, checked_model_id, default_name, spec_text
from provisioner.workload.tree import from_python

ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=60)


@pytest.mark.parametrize("task", Task)
def test_each_task(task: Task) -> None:
    loaded = parse(spec_text(task, DEFAULT_MODELS[task]).encode(), Path("workload.yaml"))
    assert loaded.warnings == ()
    assert loaded.workload.task is task
    assert loaded.workload.model.id == DEFAULT_MODELS[task]


@pytest.mark.parametrize("task", Task)
def test_commented_lines_are_valid_too(task: Task) -> None:
    """Removing the comment signs must give a valid spec, since that is what people do."""
    lines = spec_text(task, "a/b").splitlines()
    bare = [line.removeprefix("# ") if line.startswith(("# access", "# tags")) else line for line in lines]
    bare = [line.removeprefix("#") if line.startswith("#   ") else line for line in bare]
    bare = [line.replace("  # ", "  ", 1) if line.startswith("  # ") else line for line in bare]
    assert bare != lines
    workload = parse("\n".join(bare).encode(), Path("workload.yaml")).workload
    assert workload.placement.max_gpus == 8
    assert workload.access.cidrs
    assert workload.tags


@given(st.sampled_from(Task), ASCII)
def test_any_model_id_is_quoted_so_that_it_reads_back(task: Task, model_id: str) -> None:
    try:
        checked = checked_model_id(model_id)
    except UsageError:
        assert model_id != model_id.strip()
        return
    loaded = parse(spec_text(task, checked).encode(), Path("workload.yaml"))
    assert loaded.workload.model.id == model_id
    assert loaded.warnings == ()


@pytest.mark.parametrize("model_id", ["", " a", "a\nb", "é", "a\x00", "x" * 201])
def test_ids_that_no_model_has(model_id: str) -> None:
    with pytest.raises(UsageError):
        checked_model_id(model_id)


@given(st.sampled_from(Task), st.text(max_size=80))
def test_a_name_is_always_valid(task: Task, model_id: str) -> None:
    assert NAME.read(from_python(default_name(model_id, task)))


def test_a_short_context_limits_what_is_asked() -> None:
    workload = parse(spec_text(Task.SERVE, "a/b", context_limit=2048).encode(), Path("w.yaml")).workload
    assert workload.inference is not None
    assert workload.inference.context_tokens == 2048
    workload = parse(spec_text(Task.FINETUNE, "a/b", context_limit=1024).encode(), Path("w.yaml")).workload
    assert workload.training is not None
    assert workload.training.sequence_tokens == 1024


def test_a_file_name_cannot_break_out_of_its_comment() -> None:
    assert parse(spec_text(Task.SERVE, "a/b", file="x\nfoo: 1").encode(), Path("w.yaml")).warnings == ()
