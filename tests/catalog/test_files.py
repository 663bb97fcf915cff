"""Rows of tables, read by lines where that is safe and by a CSV reader where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.catalog.files import CatalogFiles

PLAIN = "cloud,name,note\naws,a,one\ngcp,b,two\nazure,c,three\n"
SPELLINGS = {
    "plain": PLAIN,
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "no last newline": PLAIN.rstrip("\n"),
    "blank lines": PLAIN.replace("\ngcp", "\n\ngcp"),
    "all quoted": '"cloud","name","note"\n"aws","a","one"\n"gcp","b","two"\n"azure","c","three"\n',
    "byte order mark": "\ufeff" + PLAIN,
}


def files(text: str) -> CatalogFiles:
    return CatalogFiles({"table.csv": Path("table.csv")}, {"table.csv": text.encode("utf-8")})


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_all_spellings_of_a_table_give_the_same_rows(text: str) -> None:
    assert files(text).rows("table.csv", "name", "note", clouds=("aws", "gcp")) == [("a", "one"), ("b", "two")]
    assert files(text).rows("table.csv", "note", "cloud") == [("one", "aws"), ("two", "gcp"), ("three", "azure")]
    assert files(text).rows("table.csv", "cloud", "name", clouds=("azure",)) == [("azure", "c")]


def test_quoted_cells_may_hold_commas_and_lines() -> None:
    text = 'cloud,name,note\naws,a,"one, two"\naws,b,"first\ngcp,x,second"\n'
    wanted = [("a", "one, two"), ("b", "first\ngcp,x,second")]
    assert files(text).rows("table.csv", "name", "note", clouds=("aws", "gcp")) == wanted


def test_the_cloud_may_be_any_column() -> None:
    text = "name,cloud\na,aws\nb,azure\n"
    assert files(text).rows("table.csv", "cloud", "name", clouds=("aws",)) == [("aws", "a")]
