"""Rendering and quoting: bash reads back exactly what went in."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import BackendError
from isocompute_sdk.launch import comment, heredoc, render, sh

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


def bash(script: str) -> str:
    return subprocess.run(["bash"], input=script.encode(), capture_output=True, check=True).stdout.decode()


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=8))
@example(["it's", '"', "$(echo x)", "`echo x`", "a\nb", "-n", "", "ü模", "\\", "!!", "*", "~", "\r", "\x01"])
def test_quoted_words_come_back_from_bash_unchanged(texts: list[str]) -> None:
    script = render("printf '%s\\0'{% for t in texts %} {{ t | sh }}{% endfor %}\n", {"texts": texts})
    assert bash(script).split("\0")[:-1] == texts


@settings(max_examples=60, deadline=None)
@given(TEXTS)
@example("a\nrm -rf x")
@example("\u2028\r\x0b $(x)")
@example("")
def test_a_comment_never_becomes_a_command(text: str) -> None:
    lines = comment(text).split("\n")
    assert all(line == "#" or line.startswith("# ") for line in lines)
    assert bash(comment(text) + "\necho end\n") == "end\n"


def test_comments_are_wrapped_and_keep_long_words_whole() -> None:
    text = "word " * 40 + "x" * 150
    lines = comment(text, indent="  ", width=80).split("\n")
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[-1] == "#   " + "x" * 150


@settings(max_examples=60, deadline=None)
@given(TEXTS)
@example("$HOME `x` \\ 'q'\nsecond")
def test_a_document_arrives_byte_for_byte(text: str) -> None:
    body = heredoc(text, "MARK")
    assert bash(f"cat <<'MARK'\n{body}MARK\n") == (text if text.endswith("\n") else text + "\n")


def test_a_document_that_holds_its_own_end_mark_is_refused() -> None:
    with pytest.raises(BackendError, match="ends the document early"):
        heredoc("a\nMARK\ntouch x\n", "MARK")
    assert heredoc("a MARK\n", "MARK") == "a MARK\n"


@pytest.mark.parametrize("text", ["a\0b", "half \ud800 pair"])
def test_what_no_argument_can_carry_is_refused(text: str) -> None:
    with pytest.raises(BackendError, match="received"):
        sh(text)
    with pytest.raises(BackendError, match="received"):
        heredoc(text, "MARK")


def test_numbers_are_written_exactly_and_other_types_refused() -> None:
    assert sh(65536) == "65536"
    assert float(sh(7.071067811865476e-07)) == 7.071067811865476e-07
    for value in (True, None, ["a"]):
        with pytest.raises(BackendError, match="accepted: text"):
            sh(value)  # type: ignore[arg-type]


def test_an_undefined_variable_is_an_error() -> None:
    with pytest.raises(BackendError, match="'modle' is undefined"):
        render("{{ modle | sh }}", {"model": "x"})
    with pytest.raises(BackendError, match="cannot be rendered"):
        render("{% if %}", {})


def test_nothing_is_escaped_for_html() -> None:
    assert render("{{ text }}\n", {"text": "a < b & 'c'"}) == "a < b & 'c'\n"
