"""Engines' own Python and Triton sources, called as a recipe is: for ``suites.meta.against_engines``."""
