"""Scripts: read as bash reads them, and written so that bash reads what was meant."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isocompute_sdk.errors import BackendError
from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import ScriptBackend, comment, heredoc, render, sh
from isocompute_sdk.training.backend import BackendInfo, extends_runs
from isocompute_sdk.training.scripts import commands
from tests.backends.framework_runs import run_maker

SCRIPTS = {
    "continued lines": "prog --a 1 \\\n  --b 'x y' \\\n  --c\n",
    "comments": "# first\nprog --a '#1' --b x#y # last ' unclosed\n",
    "quotes": """A='x  "y"'; prog "$A" $A '$A' "it's" 'it'\\''s' a\\ b "c\\"d\\$e"\n""",
    "defaults": 'prog ${N:-8} "${M:-a b}" ${L:=3} $L ${L:-4} ${K-5} ${J:+6}\n',
    "nested defaults": 'A=1; prog "${B:-${C:-$A}}" ${D:-"x $A"}\n',
    "arithmetic": "A=4 B=3\nprog $((A * B)) $((${A}+$B)) $(( (A+1) * 2 )) $((A/B))\n",
    "arrays": 'A=(--x 1 "y z" \'\')\nA+=(--w) # more\nB=()\nprog "${A[@]}" "${B[@]}" ${A[@]}\n',
    "arrays over lines": "A=(\n  --x 1  # one (of two)\n  # --y 2\n  '--z=a b' #)\n  --w\n)\nprog \"${A[@]}\"\n",
    "exports": "export N=3 M=4\ndeclare -r K=5\nprog $N $M $K\n",
    "an earlier value": "N=1\nN=2\nprog $N\nN=3\n",
    "appended": "S=a\nS+=b\nprog $S\n",
    "a branch not taken": 'N=1\nif [ "${X:-}" = y ]; then\n  N=2\nfi\nprog $N\n',
    "here-document": "cat > /dev/null <<'EOF'\nprog --not $this (\nEOF\nprog --yes\n",
    "redirections": "prog --a 1 2>&1 > /dev/fd/2\n",
    "a pipe": "prog --a 1 | cat\n",
    "several": "true && prog --a 1; prog --b 2 || true\n",
    "inside bash -c": "N=2\nbash -c \"prog --n $N --s 'a b' && true\"\n",
    "environment in front": "A=1 B='x y' prog --a\n",
    "no arguments": 'prog --a "$@" $@\n',
    "the first argument": "prog ${1:-x.yaml}\n",
}


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_words_are_those_that_bash_passes(name: str) -> None:
    script = SCRIPTS[name]
    record = 'prog() { printf "%s\\0" "$@" >&9; printf "\\1\\0" >&9; }\nexport -f prog\n'
    done = subprocess.run(
        ["bash", "-c", f"exec 9>&1 >/dev/null\n{record}{script}"],
        capture_output=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    passed = [call.split("\0")[:-1] for call in done.stdout.decode().split("\1\0")[:-1]]
    assert passed
    assert [words[1:] for words in commands(script) if words[0] == "prog"] == passed


@pytest.mark.parametrize("word", ["$HOME", "${HOME}/x", "$(nproc)", "$((UNKNOWN * 2))", "${A%.*}", "$1", "`id`"])
def test_what_the_script_does_not_say_stays_as_it_is(word: str) -> None:
    assert commands(f"prog {word}\n") == [["prog", word]]


@pytest.mark.parametrize(
    "text",
    [
        "prog 'open",
        'prog "open',
        "prog $(open",
        "A=(open",
        "prog ${open",
        "cat <<EOF\nx",
        "prog \\",
        "((",
        "$",
        "fi\nfi\n",
    ],
)
def test_a_damaged_script_ends(text: str) -> None:
    commands(text)


def test_a_script_that_calls_itself_ends() -> None:
    commands('A=\'bash -c "$A"\'\nbash -c "$A"\n')


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


def bash(script: str) -> str:
    return subprocess.run(["bash"], input=script.encode(), capture_output=True, check=True).stdout.decode()


@given(st.lists(TEXTS, min_size=1, max_size=8))
@example(["it's", '"', "$(echo x)", "`echo x`", "a\nb", "-n", "", "ü模", "\\", "!!", "*", "~", "\r", "\x01"])
def test_quoted_words_come_back_from_bash_unchanged(texts: list[str]) -> None:
    script = render("printf '%s\\0'{% for t in texts %} {{ t | sh }}{% endfor %}\n", {"texts": texts})
    assert bash(script).split("\0")[:-1] == texts


@given(TEXTS)
@example("a\nrm -rf x")
@example("\u2028\r\x0b $(x)")
@example("")
def test_a_comment_never_becomes_a_command(text: str) -> None:
    lines = comment(text).split("\n")
    assert all(line == "#" or line.startswith("# ") for line in lines)
    assert bash(comment(text) + "\necho end\n") == "end\n"


@given(TEXTS)
@example("$HOME `x` \\ 'q'\nsecond")
def test_a_document_arrives_byte_for_byte(text: str) -> None:
    body = heredoc(text, "MARK")
    assert bash(f"cat <<'MARK'\n{body}MARK\n") == (text if text.endswith("\n") else text + "\n")


def test_a_document_that_holds_its_own_end_mark_is_refused() -> None:
    with pytest.raises(BackendError, match="MARK"):
        heredoc("a\nMARK\ntouch x\n", "MARK")
    assert heredoc("a MARK\n", "MARK") == "a MARK\n"


@pytest.mark.parametrize("text", ["a\0b", "half \ud800 pair"])
def test_what_no_argument_can_carry_is_refused(text: str) -> None:
    with pytest.raises(BackendError):
        sh(text)
    with pytest.raises(BackendError):
        heredoc(text, "MARK")


class Small(ScriptBackend):
    """The least that a backend says."""

    name = "small"

    def describe(self) -> BackendInfo:
        return BackendInfo("small", "none", "9", "Prints what it is given.", ("bash",), ("grpo",), ())

    def preflight(self, run: RunSpec) -> tuple[Note, ...]:
        steps = run.update_steps
        return (Note("small-steps", "refuse" if steps > 5 else "info", f"{steps} steps\nfor $(echo me)"),)

    def values(self, run: RunSpec) -> dict[str, Any]:
        return {"words": [run.model, "it's"]}

    def template(self) -> str:
        return (
            'set -eu\n{% include "size.sh.j2" %}\n{% include "notes.sh.j2" %}\n{% include "where.sh.j2" %}\n'
            '{% include "folder.sh.j2" %}\nprintf "%s\\n"{% for w in words %} {{ w | sh }}{% endfor %} "$folder"\n'
        )


small_run = run_maker(run_id="one", model="$(m)", group_size=4, problems_per_batch=8, update_steps=5)


def test_a_backend_of_one_template_needs_no_more_than_what_is_particular_to_it(tmp_path: Path) -> None:
    run = small_run(output_dir=str(tmp_path / "it's out"))
    launch = Small().prepare(run, tmp_path / "kept")
    done = subprocess.run(launch.argv, capture_output=True, check=True, cwd=tmp_path)
    assert done.stdout.decode().splitlines() == ["$(m)", "it's", str(tmp_path / "it's out" / "one")]
    assert (tmp_path / "it's out" / "one").is_dir()
    text = launch.files[0].read_text()
    for line in ("#   rollouts per problem   n    4", "#   rollouts in total      C    160", "# - info [small-steps] "):
        assert line in text
    assert launch.env == {}
    # A framework whose schedule ends with the run would train other updates if a finished run were made longer.
    assert not extends_runs(Small())
    with pytest.raises(BackendError, match="small-steps"):
        Small().prepare(small_run(update_steps=6), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
