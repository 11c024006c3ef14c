# SPDX-License-Identifier: Apache-2.0
"""Wide operations with a mistake each, in torch: what engines' kernels do when a format is too narrow, or a step is
forgotten. Each says its mistake in its first words."""

from __future__ import annotations

import torch

from narrowgauge import WideOp, kernel

F32, BF16, F16 = ["float32"], ["bfloat16"], ["float16"]


def wide(name, sources, formats=None):
    return kernel(WideOp(name), formats or sources, sources, backend="torch")


def root(mean, epsilon=1e-6):
    return torch.rsqrt(mean + epsilon)


def mean_of(x):
    return x.float().pow(2).mean(-1, keepdim=True)


def to(format, value):
    return value.to(getattr(torch, format))


@wide("rms_norm", BF16)
def squares_summed_in_bfloat16(x, format, weight):
    """The squares are summed one after the other, in bfloat16."""
    total = torch.zeros_like(x[:, :1])
    for column in range(x.shape[1]):
        total = total + x[:, column : column + 1] * x[:, column : column + 1]
    return to(format, x.float() * root(total.float() / x.shape[1]) * weight.float())


@wide("rms_norm", F16)
def squares_in_float16(x, format, weight):
    """x is squared in float16, and the mean is float32."""
    mean = (x * x).float().mean(-1, keepdim=True)
    return to(format, x.float() * root(mean) * weight.float())


@wide("rms_norm", F16)
def mean_in_float16(x, format, weight):
    """The mean is kept in float16."""
    return to(format, x.float() * root(mean_of(x).half().float()) * weight.float())


@wide("rms_norm", F32)
def epsilon_missing(x, format, weight):
    """Nothing is added to the mean."""
    return x * root(mean_of(x), 0.0) * weight


@wide("rms_norm", F32)
def epsilon_outside(x, format, weight):
    """ε is added to the root."""
    return x / (torch.sqrt(mean_of(x)) + 1e-6) * weight


@wide("rms_norm", BF16)
def weight_of_16_bits(x, format, weight):
    """The normed row meets the weight in bfloat16."""
    return to(format, to(format, x.float() * root(mean_of(x))).float() * weight.float())


@wide("rms_norm_one_more", BF16)
def one_more_forgotten(x, format, weight):
    """Gemma's weight is taken as it is stored."""
    return to(format, x.float() * root(mean_of(x)) * weight.float())


@wide("add_rms_norm", BF16)
def residual_not_written(x, format, weight, residual):
    """The new residual is not given back."""
    summed = x.float() + residual.float()
    return to(format, summed * root(mean_of(summed)) * weight.float()), residual.clone()


@wide("add_rms_norm", BF16)
def residual_rounded(x, format, weight, residual):
    """The sum is rounded before it is normed."""
    summed = (x + residual).float()
    return to(format, summed * root(mean_of(summed)) * weight.float()), to(format, summed)


@wide("add_rms_norm_float32", BF16)
def stream_in_bfloat16(x, format, weight, residual):
    """The float32 residual is taken in bfloat16."""
    summed = x.float() + residual.bfloat16().float()
    return to(format, summed * root(mean_of(summed)) * weight.float()), summed


@wide("silu_mul", BF16)
def up_first(x, format):
    """The first half is taken for up."""
    up, gate = x.float().chunk(2, -1)
    return to(format, torch.nn.functional.silu(gate) * up)


@wide("capped_softmax", F32)
def capped_after_mask(x, format, lengths):
    """The mask comes before the cap."""
    hidden = torch.arange(x.shape[1]) >= lengths
    return torch.softmax(50 * torch.tanh(x.masked_fill(hidden, float("-inf")) / 50), -1)


@wide("softmax", F32)
def largest_kept(x, format):
    """The largest is not taken off."""
    power = torch.exp(x)
    return power / power.sum(-1, keepdim=True)


@wide("softmax", BF16)
def powers_summed_in_bfloat16(x, format):
    """The powers are summed one after the other, in bfloat16."""
    power = torch.exp(x.float() - x.float().amax(-1, keepdim=True))
    total = torch.zeros((len(x), 1), dtype=torch.bfloat16)
    for column in range(x.shape[1]):
        total = total + power[:, column : column + 1].bfloat16()
    return to(format, power / total.float())


@wide("log_softmax", F32)
def base_2(x, format):
    """The logarithm of the sum is to base 2."""
    below = x - x.amax(-1, keepdim=True)
    return below - torch.log2(torch.exp(below).sum(-1, keepdim=True))


@wide("greedy", F32, ["int32"])
def logits_in_bfloat16(x, format):
    """Logits are bfloat16 before the largest is sought."""
    return x.bfloat16().argmax(-1, keepdim=True).to(torch.int32)


@wide("greedy", F32, ["int32"])
def last_of_equal(x, format):
    """Of equal logits the last is taken."""
    return (x.shape[1] - 1 - x.flip(-1).argmax(-1, keepdim=True)).to(torch.int32)


@wide("sample", F32, ["int32"])
def temperature_ignored(x, format, temperature, noise):
    """All is sampled at temperature 1."""
    return (torch.softmax(x, -1) / noise).argmax(-1, keepdim=True).to(torch.int32)


def chosen(score, order):
    experts = torch.sort(order, dim=-1, descending=True, stable=True).indices[:, :4]
    return score.gather(1, experts), experts.to(torch.int32)


@wide("router_softmax_renormalised", F32)
def not_renormalised(x, format):
    """The chosen shares are not divided by their sum."""
    score = torch.softmax(x, -1)
    return chosen(score, score)


@wide("router_softmax", F32)
def softmax_of_chosen(x, format):
    """Softmax comes after the choice."""
    logits, experts = chosen(x, x)
    return torch.softmax(logits, -1), experts


@wide("router_sigmoid", F32)
def biased_weights(x, format, bias):
    """Weights are those of the biased scores."""
    score = torch.sigmoid(x) + bias
    weights, experts = chosen(score, score)
    return weights / weights.sum(-1, keepdim=True) * 2.5, experts


@wide("rope_neox", F32)
def angles_in_bfloat16(x, format, cos, sin):
    """Cosines and sines are bfloat16."""
    cos, sin = cos.bfloat16().float(), sin.bfloat16().float()
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


@wide("softmax", F16)
def nan_dropped(x, format):
    """NaN is taken for 0."""
    return to(format, torch.softmax(torch.where(x.isnan(), 0.0, x.float()), -1))
