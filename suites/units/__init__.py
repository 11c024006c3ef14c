"""Matrix units: models held to what real GPUs answered."""
