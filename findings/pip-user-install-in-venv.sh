#!/usr/bin/env bash
# pip 26.1 (and 23.2.1, 25.3), Python 3.11, seen 29 November 2026.
#
# In a virtual environment with `include-system-site-packages = true`, `pip install --user` of another version of a
# package that is already in the user's folder does not remove the first one ("outside environment"). The files are
# the new version's, and the metadata of both stay: pip says that it installed the old one, `pip list` shows the old
# one, and Python imports the new one.
#
#   Successfully installed six-1.15.0
#   six     1.15.0
#   1.16.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME="$folder/home" PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir "$HOME"
python3 -m venv --system-site-packages "$folder/environment"
python="$folder/environment/bin/python"
"$python" -m pip install --quiet pip==26.1
"$python" -m pip install --quiet --user six==1.15.0
installed=$("$python" -m pip install --user six==1.16.0 | tail -1)
listed=$("$python" -m pip list --user | awk '$1 == "six" {print $2}')
imported=$("$python" -c 'import six; print(six.__version__)')
printf '%s\npip list: %s\nimported: %s\n' "$installed" "$listed" "$imported"
[ "$installed" = "Successfully installed six-1.15.0" ] && [ "$listed" = 1.15.0 ] && [ "$imported" = 1.16.0 ]
