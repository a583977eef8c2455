#!/usr/bin/env bash
# Writes the lock files from pyproject.toml: every version pinned, with the hashes of every
# platform's files and the name of no host. Called by `make lock`; arguments go to the resolver
# (`make lock LOCK_FLAGS=--upgrade` moves to the newest versions).
# Extras are kept: `coverage[toml]`, which pytest-cov requires, is not held by a pin of `coverage`.
# As soon as a newer coverage is released, pip takes that one, and refuses it for want of a hash.
set -euo pipefail
cd "$(dirname "$0")/.."

tool=.venv/lock-tool # outside the environment the project runs in
if ! [ -x "$tool/bin/uv" ]; then
    .venv/bin/python -m venv "$tool"
    "$tool/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
fi

compile() { # compile OUTPUT ARGUMENT...
    local output=$1
    shift
    # --no-config and a bare environment: nothing of this machine's settings may reach the files.
    env -u UV_INDEX -u UV_INDEX_URL -u UV_DEFAULT_INDEX -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS \
        "$tool/bin/uv" pip compile --quiet --no-config --universal --python-version 3.11 \
        --generate-hashes --no-strip-extras --no-strip-markers --no-annotate \
        --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
        --output-file "$output" "$@"
    printf '%s: %s packages\n' "$output" "$(grep -c '==' "$output")"
}

project=(pyproject.toml --group build)

# The widest set first; the narrower ones take their versions from it.
compile requirements/all.txt --extra dev --extra bench --extra spark "${project[@]}" "$@"
pins=(--constraints requirements/all.txt)
compile requirements/dev.txt --extra dev --extra bench "${pins[@]}" "${project[@]}"
compile requirements/core.txt "${pins[@]}" "${project[@]}"
# Tools of a release and of the site are installed next to the development tools.
compile requirements/release.txt "${pins[@]}" --group release
compile requirements/site.txt "${pins[@]}" --group site
# The lowest versions that pyproject.toml allows. Tests run with them before a release.
compile requirements/lowest.txt --resolution lowest-direct pyproject.toml --extra export \
    --extra metrics --extra report --extra schemas --extra tls --extra ui
