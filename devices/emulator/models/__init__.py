"""Instructions of the hardware as pure functions of NumPy arrays, written from the words of the ISA."""
