#!/usr/bin/env bash
# One shard of a night: run a command, then put what it left into one file, whatever became of it.
#
#   ARCH=sm_90 SHARD=1/2 bash ci/shard.sh bash ci/containers/cuda.sh      leaves results-sm_90-1.tgz
#
# ARCH   the architecture, "cpu" for the cpu lane
# SHARD  which part of the lane, K/N; a Buildkite step with parallelism need not say it
# OUT    where results go (default: results/ARCH-K)
# The exit code is the command's.
set -euo pipefail

: "${ARCH:?names the architecture, for example sm_90}"
SHARD=${SHARD:-$((${BUILDKITE_PARALLEL_JOB:-0} + 1))/${BUILDKITE_PARALLEL_JOB_COUNT:-1}}
OUT=${OUT:-results/$ARCH-${SHARD%%/*}}
export ARCH SHARD OUT

# In the background, so that a signal is passed on at once: bash would else wait for the command's end.
"$@" &
command=$!
trap 'kill -TERM "$command" 2>/dev/null || true' INT TERM
code=0
wait "$command" || code=$?
while kill -0 "$command" 2>/dev/null; do # a signal ends the first wait before the command has ended
  wait "$command" || code=$?
done

mkdir -p "$OUT"
tar -czf "results-$ARCH-${SHARD%%/*}.tgz" -C "$(dirname "$OUT")" "$(basename "$OUT")"
exit "$code"
