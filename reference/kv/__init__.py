"""Key-value caches: what attention over one may return."""
