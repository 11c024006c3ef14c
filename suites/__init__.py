"""The suites: pytest tests that hold kernels to the reference, and the tests of the suite itself in ``meta``."""
