"""Kinds of findings about the numbers in tensors, now and after a conversion."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

_WIDE = "Serve it in bfloat16 or float32, or keep this tensor in float32."
_SCALED = "Quantize with scales: a recipe, not a cast."


def _into(to: str) -> dict[str, Kind]:
    """What a cast to a wide destination loses."""
    return {
        f"infinite in {to}": Kind(
            "wrong", f"Finite values lie beyond the largest of {to} and become infinite there.", _WIDE
        ),
        f"many zero in {to}": Kind(
            "doubt", f"More than one value in a thousand is too small for {to} and becomes zero.", _WIDE
        ),
        f"scale lost in {to}": Kind(
            "doubt",
            f"A scale becomes 0 or infinite in {to}, if it is cast: engines keep scales of 8-bit formats in float32.",
            "Look whether the scale is sound; where the engine casts it (AWQ, GPTQ), serve in bfloat16.",
        ),
        f"zero in {to}": Kind(
            "note",
            f"Some values are too small for {to} and become zero.",
            "Nothing, as long as they are few; look where they stand.",
        ),
        f"zero where it counts in {to}": Kind(
            "wrong", f"Values by which others are divided are too small for {to} and become zero.", _WIDE
        ),
    }


VALUES: dict[str, Kind] = {
    **_into("bfloat16"),
    **_into("float16"),
    "E8M0 cannot double": Kind(
        "wrong",
        "A power of two for scale has the largest code or NaN: on the way to FNUZ it cannot become twice as large.",
        "Quantize these blocks again, from the original weights.",
    ),
    "FNUZ bytes labelled OCP": Kind(
        "wrong",
        "The file says OCP, and the bytes are FNUZ: every number is read as twice what was meant, and ±240 as NaN.",
        "Convert the codes and halve the scales, or label the tensor as what it is.",
    ),
    "NaN becomes finite": Kind(
        "wrong",
        "Codes that are NaN or infinite in OCP are finite in FNUZ, and engines change no code but 0x80.",
        "Find out where the NaN come from; quantize again from the original weights.",
    ),
    "NaN there": Kind(
        "wrong",
        "The tensor holds NaN as it is.",
        "Take it from an earlier checkpoint; whatever it meets will be NaN.",
    ),
    "OCP bytes for FNUZ": Kind(
        "doubt",
        "Bytes of OCP are bound for a device of FNUZ, where 0x80 is NaN and every other code half as much.",
        "Convert them: 0x80 becomes 0x00, and every scale of them, of activations too, doubles.",
    ),
    "beyond a narrow format": Kind(
        "wrong",
        "Without a scale, values lie beyond the largest of the destination: they saturate or become NaN.",
        _SCALED,
    ),
    "bytes of another format": Kind(
        "doubt",
        "How often each code stands there fits another format than the one that the file names.",
        "Compare with the original weights by --against.",
    ),
    "exponents as integers": Kind(
        "note",
        "Powers of two that scale others, E8M0, are called integers, as tools commonly do.",
        "Nothing, where the reader knows; the file could say F8_E8M0.",
    ),
    "flavour not recorded": Kind(
        "doubt",
        "The file calls 8-bit floats by the name of an integer type, so it does not say which flavour they are.",
        "Write them with the dtype that they have: F8_E4M3, F8_E4M3FNUZ, F8_E5M2 or F8_E8M0.",
    ),
    "infinity there": Kind(
        "wrong", "The tensor holds infinities as it is.", "Take it from an earlier checkpoint, or clip it, knowingly."
    ),
    "scale cannot double": Kind(
        "wrong",
        "On the way to FNUZ a scale becomes twice as large, and then it is infinite.",
        "Quantize again from the original weights: such scales are not sound.",
    ),
    "zero in a narrow format": Kind(
        "doubt", "Without a scale, values are too small for the destination and become zero.", _SCALED
    ),
    "lost outside the model": Kind(
        "note",
        "A tensor that is not the model's (an optimizer's state, a counter) does not survive the conversion.",
        "Nothing for serving: load the model's own tensors only. To train on, keep it in float32.",
    ),
}
