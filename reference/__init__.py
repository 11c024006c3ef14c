"""The oracle: what every format, cast and quantizer must give. NumPy only; no kernel may import it."""
