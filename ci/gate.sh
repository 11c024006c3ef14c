#!/usr/bin/env bash
# The end of a night: unpack what the shards left, judge it, and make the report.
#
#   EXPECT="cpu/cpu cuda/sm_90" bash ci/gate.sh [--waivers FILE]...
#
# reads results-*.tgz, leaves summary.md and report.tgz. Files of waivers are those that the runs were given.
#
# EXPECT       places that must have results: LANE/ARCHITECTURE, with blanks between
# HISTORY      folder of what is known of earlier nights (default: history)
# NARROWGAUGE  the command (default: tox -q -e gate --)
# The exit code is the gate's; the report's where the gate is green.
set -euo pipefail

: "${EXPECT:?names the places that must have results, for example cpu/cpu cuda/sm_90}"
HISTORY=${HISTORY:-history}
read -ra narrowgauge <<<"${NARROWGAUGE:-tox -q -e gate --}"
read -ra places <<<"${EXPECT//$'\n'/ }"
expect=("${places[@]/#/--expect=}")

if [ -n "${BUILDKITE:-}" ]; then
  rm -f results-*.tgz # of a shard that ran in this checkout: what counts is what was kept
  buildkite-agent artifact download 'results-*.tgz' . || echo "no shard left results"
fi
rm -rf night site report.tgz summary.md
mkdir -p night "$HISTORY"
shopt -s nullglob
for file in results-*.tgz; do
  # What comes out of a damaged file is cut, and the gate says so.
  tar -xzf "$file" -C night || echo "$file is damaged"
done
code=0
"${narrowgauge[@]}" gate night "${expect[@]}" \
  --history "$HISTORY/nights.json.gz" --summary summary.md "$@" || code=$?
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f summary.md ]; then
  cat summary.md >>"$GITHUB_STEP_SUMMARY"
fi
if [ -n "${BUILDKITE:-}" ] && [ -f summary.md ]; then
  style=success
  [ "$code" -eq 0 ] || style=error
  buildkite-agent annotate --context gate --style "$style" <summary.md
fi

made=0
shards=(night/*/)
if [ "${#shards[@]}" -gt 0 ]; then
  # One page that opens from a disk: whoever downloads the artifact has no server for it.
  "${narrowgauge[@]}" report "${shards[@]}" --install --out site --single-file \
    --history "$HISTORY/allure.jsonl" "$@" || made=$?
fi
if [ -d site/report ]; then
  tar -czf report.tgz -C site report
fi
[ "$code" -ne 0 ] || code=$made
exit "$code"
