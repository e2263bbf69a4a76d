#!/usr/bin/env bash
# Installs the released servers and clients of others that tests/interop.rs runs (feature real-servers), pinned, into
# target/real. What is there already, in the same versions, is skipped. Needs Node 20 or newer with npm, and Python 3.10
# or newer with venv.
set -euo pipefail
cd "$(dirname "$0")"
to=../../target/real
mkdir -p "$to"
to=$(cd "$to" && pwd)

# installed NAME FILE: whether FILE is what was installed last.
installed() {
    cmp -s "$2" "$to/$1.done"
}

if installed npm package.json; then
    echo "npm packages: there"
else
    echo "npm packages: installing"
    cp package.json "$to/package.json"
    # No package's own install script runs.
    npm install --prefix "$to" --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null
    cp package.json "$to/npm.done"
fi

if installed python requirements.txt; then
    echo "Python packages: there"
else
    echo "Python packages: installing"
    python3 -m venv --clear "$to/venv"
    "$to/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.txt </dev/null
    cp requirements.txt "$to/python.done"
fi
