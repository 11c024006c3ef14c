"""Read sources, run nothing: places that a port from one float8 flavour to the other has to touch."""
