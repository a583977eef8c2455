#!/bin/sh
# Prints the Python that .venv is made with, or says what is missing and how to get it.
# An argument names the only candidate (`make PYTHON=...`).
if [ -n "$1" ]; then candidates=$1; else candidates="python3 python3.13 python3.12 python3.11 python3.14 python"; fi

without_venv=
for candidate in $candidates; do
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue
    if "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        command -v "$candidate"
        exit 0
    fi
    without_venv=${without_venv:-$candidate}
done

{
    if [ -n "$without_venv" ]; then
        version=$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "$without_venv (Python $version) has no venv module or no ensurepip, which .venv needs."
        echo "  Debian, Ubuntu:  apt-get install python3-venv    (or python$version-venv)"
        echo "  elsewhere:       install your system's full Python $version package"
    else
        echo "No Python 3.11 or newer found (looked for: $candidates)."
        echo "  Debian 12+, Ubuntu 24.04+:  apt-get install python3 python3-venv"
        echo "  Fedora: dnf install python3      macOS: brew install python"
        echo "  installed under another name: make PYTHON=/path/to/python3.12 ..."
    fi
} >&2
exit 1
