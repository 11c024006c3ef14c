"""Seconds that tests of a lane took, by target, kernel and operation: LANE.json, written by ci/splitting.py."""
