"""Key-value caches: what is written and read, what attention over one may return, and what engines do around them."""
