"""Kernels with wrappers as owners write them: plugged in by the tests beside, loaded in children only."""
