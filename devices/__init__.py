"""Where kernels run: each device is a child process with the environment it needs, and one verb."""
