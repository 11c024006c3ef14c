"""Allure 3 for the owners of kernels: identity of results, gathering of shards, configuration, and how it is run."""
