"""Fewer letters, the same program: what the parser and the shell read stays what it was."""

from __future__ import annotations

import ast
import json
import statistics
import subprocess
from pathlib import Path

import pytest

import provisioner.node
from provisioner.errors import InternalBug
from provisioner.node.tighten import tight_program, tight_script

MODULES = sorted(Path(provisioner.node.__file__).parent.glob("*.py"))


def bare(source: str) -> str:
    return "".join(f"{line}\n" for line in ast.unparse(ast.parse(source)).splitlines() if line)


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("return (a, b)", "return a,b\n"),
        ("x = (1, 2) if (not y) and (z > 0) else (3,)", "x=(1,2)if not y and z>0 else(3,)\n"),
        ("n = sum((a for a in b if (a is not None)))", "n=sum(a for a in b if a is not None)\n"),
        (
            "if a:\n    b = 1\n    c = 2\nelif (d):\n    e()\nelse:\n    f()\ng()",
            "if a:b=1;c=2\nelif d:e()\nelse:f()\ng()\n",
        ),
        (
            "a = 1\nb = 2\nwhile a:\n    if b:\n        break\n    a = 2\n    b = 3",
            "a=1;b=2\nwhile a:\n if b:break\n a=2;b=3\n",
        ),
        ("try:\n    a()\nexcept (OSError, ValueError):\n    pass", "try:a()\nexcept(OSError,ValueError):pass\n"),
        (
            "@a\nclass B:\n    c = 1\n    @d\n    def e(self):\n        return f'{x} y'",
            "@a\nclass B:\n c=1\n @d\n def e(self):return f'{x} y'\n",
        ),
        ("a = b[(c := 1)]\ne = (a + b) * c", "a=b[(c:=1)];e=(a+b)*c\n"),
        ("a = 'x' if 'y' in z else b'w'", "a='x'if'y'in z else b'w'\n"),
        ("a = 1 if b else 2", "a=1 if b else 2\n"),
    ],
)
def test_what_no_token_needs_is_left_out(long: str, short: str) -> None:
    assert tight_program(bare(long)) == short


@pytest.mark.parametrize(
    "path", [*MODULES, Path(json.decoder.__file__), Path(statistics.__file__)], ids=lambda path: path.name
)
def test_any_program_stays_the_same_one(path: Path) -> None:
    plain = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(plain):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            kept = [
                each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ]
            node.body = kept or [ast.Pass()]
    source = bare(ast.unparse(plain))
    short = tight_program(source)
    assert ast.dump(ast.parse(short)) == ast.dump(ast.parse(source))
    assert len(short) <= len(source)
    assert tight_program(bare(short)) == short


SCRIPT = """#!/bin/bash
# A comment.
say() { # of a kind: two words
  case "$1" in
    a*) echo "one # two" ;; # if a
    b*) echo '# three' $# ;; # if b
  esac
}

say "$1"  # once
"""


def test_a_script_loses_its_comments_and_lines_that_nobody_needs() -> None:
    whole = tight_script(SCRIPT, {"a", "b"})
    lines = [
        "#!/bin/bash",
        "say() {",
        'case "$1" in',
        'a*) echo "one # two" ;;',
        "b*) echo '# three' $# ;;",
        "esac",
        "}",
    ]
    assert whole.splitlines() == [*lines, 'say "$1"']
    assert "three" not in tight_script(SCRIPT, {"a"})
    for word in ("apple", "bear"):
        said = [
            subprocess.run(["/bin/bash", "-c", text, "sh", word], capture_output=True, text=True, check=True).stdout
            for text in (SCRIPT, whole)
        ]
        assert said[0] == said[1] != ""


def test_blocks_are_there_for_who_needs_them() -> None:
    source = "#!/bin/bash\n# if a\n# why\nfirst\n# end\nmiddle # if b\n# if c\nlast\n# end\n"
    assert tight_script(source) == "#!/bin/bash\n"
    assert tight_script(source, {"a", "b"}) == "#!/bin/bash\nfirst\nmiddle\n"
    assert tight_script(source, {"c"}) == "#!/bin/bash\nlast\n"


def test_a_here_document_is_refused() -> None:
    with pytest.raises(InternalBug, match="here-document"):
        tight_script("#!/bin/bash\ncat <<EOF\n  text\nEOF\n")
