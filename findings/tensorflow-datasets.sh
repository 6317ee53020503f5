#!/usr/bin/env bash
# tensorflow-datasets 4.9.10 with etils 1.15.0, what pip chose for `tensorflow-datasets` in November 2026; Python 3.11.
#
# It imports `importlib_resources`, which none of its requirements brings since etils 1.14. Nothing fails until the first
# dataset is asked for: `tfds.load("mnist")` in the program of GKE's tutorial for a T4 ends with
#
#     ModuleNotFoundError: No module named 'importlib_resources'
#
# after `pip install -r requirements.txt` said "Successfully installed". Add `importlib_resources` to the requirements.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/environment"
"$folder/environment/bin/pip" install --quiet tensorflow-datasets==4.9.10 etils==1.15.0
if output=$("$folder/environment/bin/python" -c "
import tensorflow_datasets
tensorflow_datasets.builder_cls('mnist').code_path
" 2>&1); then
  echo "changed: the dataset is found" && exit 1
fi
echo "$output" | tail -n 1
echo "$output" | grep --quiet "^ModuleNotFoundError: No module named 'importlib_resources'$" || exit 1
