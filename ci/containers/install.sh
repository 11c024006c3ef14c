#!/usr/bin/env bash
# Inside a vendor's image: install narrowgauge beside the image's torch and Triton, and fail if either is another than
# before. Into the image's own Python: the Python of some images is a virtual environment, which one made on top of it
# would not see. Never install triton here: on ROCm it is AMD's build, and the default index has NVIDIA's.
set -euo pipefail
cd "$(dirname "$0")/../.."

export PIP_BREAK_SYSTEM_PACKAGES=1 # the image is all this Python is for
before=$(python3 ci/containers/vendor.py)
python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check '.[run,plot]'
after=$(python3 ci/containers/vendor.py)
if [ "$before" != "$after" ]; then
  printf 'the vendor'\''s packages are others than before.\nbefore:\n%s\nafter:\n%s\n' "$before" "$after" >&2
  exit 1
fi
printf 'kept as the image has them:\n%s\n' "$after"
