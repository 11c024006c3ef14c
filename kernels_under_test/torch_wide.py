"""Wide operations by torch's own operators, in float32 whatever comes."""

from __future__ import annotations

import torch

from narrowgauge.kernels_under_test.claiming import ALL_SOURCES, BFLOAT16, FLOAT16, FLOAT32, INT32, TWO_SOURCES, wide

EPSILON, FINAL_CAP, SCORE_CAP, CHOSEN, ROUTED = 1e-6, 30.0, 50.0, 4, 2.5


def normal(x):
    """x over the root of the mean of its squares, in float32."""
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON)


def to(format, value):
    return value.to(getattr(torch, format))


@wide("rms_norm", FLOAT16, backend="torch")
def torch_wide_rms_norm(x, format, weight):
    return to(format, normal(x) * weight.float())


@wide("rms_norm", FLOAT32, backend="torch")
def torch_wide_own_rms_norm(x, format, weight):
    return torch.nn.functional.rms_norm(x, x.shape[1:], weight[0], EPSILON)


@wide("rms_norm_twice_rounded", FLOAT16, backend="torch")
def torch_wide_rms_norm_twice(x, format, weight):
    return to(format, normal(x).to(x.dtype).float() * weight.float())


@wide("rms_norm_one_more", BFLOAT16, backend="torch")
def torch_wide_rms_norm_one_more(x, format, weight):
    return to(format, normal(x) * (1.0 + weight.float()))


@wide("add_rms_norm", FLOAT16, backend="torch")
def torch_wide_add_rms_norm(x, format, weight, residual):
    summed = x.float() + residual.float()
    return to(format, normal(summed) * weight.float()), to(format, summed)


@wide("add_rms_norm_rounded", FLOAT16, backend="torch")
def torch_wide_add_rms_norm_rounded(x, format, weight, residual):
    summed = x + residual
    return to(format, normal(summed) * weight.float()), to(format, summed)


@wide("add_rms_norm_float32", FLOAT16, backend="torch")
def torch_wide_add_rms_norm_float32(x, format, weight, residual):
    summed = x.float() + residual
    return to(format, normal(summed) * weight.float()), summed


@wide("silu_mul", FLOAT16, backend="torch")
def torch_wide_silu_mul(x, format):
    gate, up = x.float().chunk(2, -1)
    return to(format, torch.nn.functional.silu(gate) * up)


@wide("silu_mul_twice_rounded", BFLOAT16, backend="torch")
def torch_wide_silu_mul_twice(x, format):
    gate, up = x.chunk(2, -1)
    return to(format, torch.nn.functional.silu(gate.float()).to(x.dtype).float() * up.float())


@wide("soft_cap", BFLOAT16, backend="torch")
def torch_wide_soft_cap(x, format):
    return to(format, FINAL_CAP * torch.tanh(x.float() / FINAL_CAP))


@wide("rope_neox", FLOAT16, backend="torch")
def torch_wide_rope_neox(x, format, cos, sin):
    a, b = x.float().chunk(2, -1)
    return to(format, torch.cat((a * cos - b * sin, b * cos + a * sin), -1))


@wide("rope_interleaved", BFLOAT16, backend="torch")
def torch_wide_rope_interleaved(x, format, cos, sin):
    a, b = x.float()[:, ::2], x.float()[:, 1::2]
    return to(format, torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2))


@wide("softmax", BFLOAT16, backend="torch")
def torch_wide_softmax(x, format):
    return to(format, torch.softmax(x, -1, dtype=torch.float32))


@wide("log_softmax", FLOAT16, FLOAT32, backend="torch")
def torch_wide_log_softmax(x, format):
    return torch.log_softmax(x, -1, dtype=torch.float32)


@wide("capped_softmax", FLOAT32, backend="torch")
def torch_wide_capped_softmax(x, format, lengths):
    score = SCORE_CAP * torch.tanh(x / SCORE_CAP)
    hidden = torch.arange(x.shape[1], device=x.device) >= lengths
    return torch.softmax(score.masked_fill(hidden, float("-inf")), -1)


@wide("greedy", ALL_SOURCES, INT32, backend="torch")
def torch_wide_greedy(x, format):
    return x.float().argmax(-1, keepdim=True).to(torch.int32)


@wide("sample", TWO_SOURCES, INT32, backend="torch")
def torch_wide_sample(x, format, temperature, noise):
    share = torch.softmax(x.float() / temperature, -1)
    return (share / noise).argmax(-1, keepdim=True).to(torch.int32)


def chosen(score, order):
    """Experts in order, of equal ones the lower first, and their scores."""
    experts = torch.sort(order, dim=-1, descending=True, stable=True).indices[:, :CHOSEN]
    return score.gather(1, experts), experts.to(torch.int32)


@wide("router_softmax", BFLOAT16, FLOAT32, backend="torch")
def torch_wide_router_softmax(x, format):
    score = torch.softmax(x, -1, dtype=torch.float32)
    return chosen(score, score)


@wide("router_softmax_renormalised", FLOAT32, backend="torch")
def torch_wide_router_softmax_renormalised(x, format):
    score = torch.softmax(x, -1)
    weights, experts = chosen(score, score)
    return weights / weights.sum(-1, keepdim=True), experts


@wide("router_chosen_softmax", FLOAT32, backend="torch")
def torch_wide_router_chosen_softmax(x, format):
    logits, experts = torch.topk(x, CHOSEN, dim=-1)
    return torch.softmax(logits, -1), experts.to(torch.int32)


@wide("router_sigmoid", BFLOAT16, FLOAT32, backend="torch")
def torch_wide_router_sigmoid(x, format, bias):
    score = torch.sigmoid(x.float())
    weights, experts = chosen(score, score + bias)
    return weights / weights.sum(-1, keepdim=True) * ROUTED, experts
