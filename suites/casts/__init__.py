"""Casts: one value in one format becomes a code of another."""
