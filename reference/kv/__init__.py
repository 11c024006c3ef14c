"""What engines do around the numbers of a key-value cache: which scales they use, what a flag stores, what it costs."""
