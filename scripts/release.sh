#!/usr/bin/env bash
# Make a release: sdist and wheel in dist/, checked. Nothing leaves this machine; the last lines say what to run then.
#
#     scripts/release.sh          builds and checks the commit that is checked out
#
# Checked: the changelog names the version; the wheel is built from the sdist and holds our packages and nothing else;
# it plans from a table and from the prior where nothing of this repository is, with the oldest dependencies that
# pyproject.toml allows, with the pinned ones and with the newest; the pinned ones have no known flaws, if the index that
# lists them answers.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/tools"
"$work/tools/bin/pip" install -q build twine uv pip-audit
tool() { "$work/tools/bin/$1" "${@:2}"; }
# The index that pip was told to use is uv's too.
index=${PIP_INDEX_URL:-$("$work/tools/bin/pip" config get global.index-url 2> "$work/none" || true)}
[[ -z "$index" ]] || export UV_INDEX_URL="$index"

rm -rf dist
tool python -m build --outdir dist . > "$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
wheel=$(ls dist/*.whl)
version=$(basename "$wheel" | cut -d- -f2)
grep -qF "## [$version]" CHANGELOG.md || { echo "CHANGELOG.md has no section [$version]" >&2; exit 1; }
tool twine check --strict dist/*

# Packages, their data, and the metadata; no tests, no caches.
strangers=$(tool python -m zipfile -l "$wheel" | awk 'NR > 1 {print $1}' |
  grep -Ev '^(isocompute_(sdk|openrlhf|simulator|torch|trl|verl)/|isocompute-[^/]*\.dist-info/)' || true)
caches=$(tool python -m zipfile -l "$wheel" | grep -E '__pycache__|\.pyc|/tests?/' || true)
[[ -z "$strangers$caches" ]] || { printf 'not of this package:\n%s\n%s\n' "$strangers" "$caches" >&2; exit 1; }

# pip cannot resolve to the oldest versions, so that uv names them; it asks the index that pip was told to use.
if ! tool uv pip compile -q --resolution lowest-direct pyproject.toml -o "$work/oldest.txt" > "$work/resolved" 2>&1; then
  cat "$work/resolved" >&2
  [[ -n "${CI:-}" ]] || exit 1
  echo "with the oldest dependencies: not checked, they could not be resolved"
fi
for which in oldest pinned newest; do
  [[ "$which" != oldest || -s "$work/oldest.txt" ]] || continue
  python3 -m venv "$work/$which"
  install() { "$work/$which/bin/pip" install -q "$@"; }
  case $which in
    oldest) install -r "$work/oldest.txt" ;;
    pinned) install -c constraints.txt "$wheel" ;;
    newest) install "$wheel" ;;
  esac
  [[ "$which" != oldest ]] || install --no-deps "$wheel"
  echo "with the $which dependencies:"
  (
    cd "$work"
    "$which/bin/isocompute" --version
    "$which/bin/isocompute" plan --budget 3M > plan.txt
    "$which/bin/isocompute" allocate "$root/docs/examples/runs.csv" --budget 900k --output "$which.json" > allocate.txt
    "$which/bin/isocompute" report "$root/docs/examples/runs.csv" --budget 900k --output "$which.html" > report.txt
    grep -E '^(plan|predicted)' allocate.txt
  )
done

tool pip-audit --progress-spinner off -r constraints.txt --no-deps --disable-pip > "$work/flaws.txt" 2>&1 || true
if grep -q '^Found [1-9]' "$work/flaws.txt"; then
  cat "$work/flaws.txt" >&2
  # A flaw that was found overnight stops a release, not every other change.
  [[ -n "${CI:-}" ]] || exit 1
fi
asked=$(grep -c == constraints.txt) skipped=$(grep -c "could not be audited" "$work/flaws.txt" || true)
if ! grep -q '^No known' "$work/flaws.txt" || ((skipped >= asked)); then
  echo "known flaws of the pinned dependencies: not looked up, the index that lists them did not answer"
else
  echo "known flaws of the pinned dependencies: none, $skipped of $asked could not be looked up"
fi

cat << END
dist/ holds isocompute $version. To publish it:
  git tag v$version && git push origin v$version
  twine upload dist/*
END
