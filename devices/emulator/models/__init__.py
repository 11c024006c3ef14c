"""Hardware instructions as pure functions of NumPy arrays, written from the words of the instruction sets."""
