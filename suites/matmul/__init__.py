"""Products of matrices: equality where sums are exact, bounds elsewhere."""
