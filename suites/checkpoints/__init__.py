"""Checkpoints: what one tool stored becomes what another place expects."""
