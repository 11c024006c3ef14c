"""Compiled GPU code, executed on the CPU: engine, front ends and models of hardware instructions."""
