"""Compiled GPU code executed on the CPU: one engine, one front end for each assembly language. Runs in the child."""
