"""pytest plugins: ``guard`` is there in every pytest run and stays out of its way; ``suite`` is loaded by our ini."""
