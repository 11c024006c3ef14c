"""Speed, as ratios against a peer in the same process and one thread; nothing here is a test."""
