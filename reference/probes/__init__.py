"""What a product of matrices does inside, found out from what comes back: the accumulator, its order, its scales."""
