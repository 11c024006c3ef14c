"""A checkout that is not installed finds the guard here; in one that is, this is the same plugin again."""

pytest_plugins = ["narrowgauge.plugin.guard"]
