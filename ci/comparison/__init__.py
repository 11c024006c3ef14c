"""Rows of several targets, lanes or nights beside each other. docs/compare.md has what is said of them."""
