"""Operations that must be wide: their steps as intervals, what is chosen, inputs."""
