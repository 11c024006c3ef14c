"""Kernels that are wrong on purpose: each file re-enacts one mistake of a public report and is otherwise right."""
