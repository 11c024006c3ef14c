"""Golden vectors: expected codes as data, for every language, with a manifest that says whether they are intact."""
