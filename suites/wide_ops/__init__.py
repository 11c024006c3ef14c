"""Operations that must stay wide: norms, activations, rotations, softmax, samplers, routers."""
