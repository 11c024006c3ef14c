"""Quantizers: a matrix becomes codes and scales."""
