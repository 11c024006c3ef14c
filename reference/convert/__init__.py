"""Conversions of what checkpoints store: catalogue, steps, inputs, memory."""
