"""What a tensor is for, by its name."""

from __future__ import annotations

import re

from narrowgauge.checkpoints.model import Role

#: the first that matches decides; what none matches is the model's
RULES: tuple[tuple[str, Role], ...] = (
    # torch.optim.Optimizer.state_dict: state by the number of the parameter; trainers' names for it
    (
        r"(^|\.)(optimizer|optimizers|optimizer_states?|optimizer_state_dict|optim|opt_state|optimiser)(\.|$)",
        "optimizer",
    ),
    (r"(^|\.)(exp_avg|exp_avg_sq|max_exp_avg_sq|exp_inf|momentum_buffer|square_avg|grad_avg|acc_delta)$", "optimizer"),
    (r"^state\.\d+\.", "optimizer"),
    (r"^(lr_scheduler|lr_schedulers|scheduler|scaler|grad_scaler|rng_state|rng_states|random_states?)(\.|$)", "other"),
    (r"^(torch_rng_state|cuda_rng_state|cpu_rng_state|epoch|step|global_step|iteration|best_.*)(\.|$)", "other"),
)
_RULES = tuple((re.compile(pattern), role) for pattern, role in RULES)
_ANY = re.compile("|".join(pattern for pattern, _ in RULES))


def role_of(name: str) -> Role:
    """Whether a tensor of that name is the model's, an optimizer's, or neither."""
    if not _ANY.search(name):
        return "model"  # as nearly all of a hundred thousand are
    return next(role for pattern, role in _RULES if pattern.search(name))
