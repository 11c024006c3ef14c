"""Checkpoint files: what is in them, what is wrong with them, and what becomes of them elsewhere. Numbers are never
trusted to a library: headers and raw bytes are read here, and codes mean what narrowgauge.reference says."""
