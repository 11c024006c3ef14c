"""Products of matrices: what engines multiply, how far a sum may be off, and what a kernel must give."""
