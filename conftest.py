"""A checkout that is not installed finds the plugin here; in one that is, this is the same plugin again."""

pytest_plugins = ["narrowgauge.plugin"]
