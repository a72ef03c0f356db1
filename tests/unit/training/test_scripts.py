"""Words of shell scripts, compared with what bash itself passes."""

from __future__ import annotations

import subprocess

import pytest

from isocompute_sdk.training.scripts import commands

SCRIPTS = {
    "continued lines": "prog --a 1 \\\n  --b 'x y' \\\n  --c\n",
    "comments": "# first\nprog --a '#1' --b x#y # last ' unclosed\n",
    "quotes": """A='x  "y"'; prog "$A" $A '$A' "it's" 'it'\\''s' a\\ b "c\\"d\\$e"\n""",
    "defaults": 'prog ${N:-8} "${M:-a b}" ${L:=3} $L ${L:-4} ${K-5} ${J:+6}\n',
    "nested defaults": 'A=1; prog "${B:-${C:-$A}}" ${D:-"x $A"}\n',
    "arithmetic": "A=4 B=3\nprog $((A * B)) $((${A}+$B)) $(( (A+1) * 2 )) $((A/B))\n",
    "arrays": 'A=(--x 1 "y z")\nA+=(--w) # more\nB=()\nprog "${A[@]}" "${B[@]}" ${A[@]}\n',
    "arrays over lines": "A=(\n  --x 1  # one (of two)\n  # --y 2\n  '--z=a b'\n)\nprog \"${A[@]}\"\n",
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
