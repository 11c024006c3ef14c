"""What of the articles is not on the list."""

from __future__ import annotations

#: where, and what stands there that is no statement about numbers, or that no computation on one machine settles
LEFT_OUT: tuple[tuple[str, str], ...] = (
    ("000:3, 000:78, 003:3", "that decoding is bound by memory; the model's size and the GPU's bandwidth are given"),
    ("000:7-31, 000:46-59, 000:147-162, 000:170-179, 000:208-334, 000:396-409", "an engine's names, flags, log lines"),
    ("003:94-117", "the same of another engine"),
    ("000:36, 000:74, 000:411, 000:458, 002:7, 002:40, 002:91", "what values models hold: outliers, weak layers"),
    ("000:72", "that bf16 needs no loss scaling in training"),
    ("000:109-125, 000:336", "which operations should be computed wide (docs/legal.md: each with a counterexample)"),
    ("000:141", "that a check on a CPU does not certify a GPU (docs/hardware.md)"),
    ("000:421-454", "scripts, but for the numbers that they name"),
    ("002:7, 002:11, 002:42-59", "which hardware, report or library uses which format, tile and recipe"),
    ("002:65, 002:87-91, 002:101-112", "advice on measuring, calibrating and choosing"),
    ("003:44, 003:125", "what dequantizing to bf16 first gives back of the bandwidth"),
    ("003:119-127", "a list of questions to ask of code"),
)  # fmt: skip
