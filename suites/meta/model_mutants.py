"""Mutations of the emulator's models and opcodes that no test can notice, with the reason."""

from __future__ import annotations

EQUIVALENT_FOR: dict[str, dict[str, tuple[str, ...]]] = {
    "arrays are (waves, lanes): axis 1 is the last one": {"lanes": ("-1 becomes 1",)},
    "a direction is 1 or -1, of which only the sign is looked at": {
        "bands": (
            "toward < 0 becomes toward <= 0",
            "0 becomes 1 in toward < 0",
            "1 becomes 2 in _directed(true + error, 1)",
            "1 becomes 2 in -1",
        ),
    },
    "where the two are equal, both arms are the same number": {
        "bands": (
            "np.abs(center) > count * unit becomes np.abs(center) >= count * unit",
            "reals(low) > value becomes reals(low) >= value",
            "reals(high) < value becomes reals(high) <= value",
        ),
        "nvidia_approx": ("value > 0.5 becomes value >= 0.5", "value < 2 becomes value <= 2"),
    },
    "where NaN is the only answer both ends are that NaN, and where there is one answer both are that": {
        "answers": ("self.open() & ~_is_nan(self.first) becomes self.open() | ~_is_nan(self.first)",),
    },
    "of zero and of one the nearest binary32 is the number itself": {"bands": ("0 becomes 1 in true == 0",)},
    "a multiple of pi is no binary32": {
        "nvidia_approx": (
            "size <= 2 * np.pi becomes size < 2 * np.pi",
            "size <= 100 * np.pi becomes size < 100 * np.pi",
        ),
    },
    "where nothing is stated any band wider than [-1, 1] will do": {
        "nvidia_approx": ("2.0 becomes 3.0 in np.where(size <= 100 * np.pi, 2.0 ** (-14.7), 2.0)",),
    },
    "NumPy shifts by the width or more to 0, or to the sign": {
        "ptx_integer": (
            "8 becomes 9 in 8 * dtype.itemsize",
            "4 becomes 5 in range(4)",
            "width - 1 becomes width + 1",
        ),
    },
    "no bit is left of a field that begins beyond the word": {
        "ptx_integer": ("at >= width becomes at > width", "0 becomes 1 in u(0)"),
    },
    "the remainder of a division by zero is open": {"ptx_integer": ("1 becomes 2 in y.dtype.type(1)",)},
    "a table of three has eight bits": {"ptx_integer": ("8 becomes 9 in range(8)",)},
    "NumPy takes any negative length for the one that is left open": {
        "ptx_integer": ("1 becomes 2 in -1",),
        "ptx_float": ("1 becomes 2 in -1",),
    },
    "no caller asks for it: it would be refused before": {
        "ptx_float": ("if kind not in ('f32', 'f32x2') is never so",)
    },
    "both have the same length": {"llvm_float": ("True becomes False in strict=True",)},
    "a power beyond the range of every format is as good as another": {
        "llvm_float": (
            "5000 becomes 5001 in np.clip(power.view(signed(whole_kind)).astype(np.int64), -5000, 5000)",
            "5000 becomes 5001 in -5000",
        ),
    },
    "a sum or product of bfloat16 numbers rounds the same with and without binary32 between": {
        "llvm_float": (
            "if b.opcode in _OF_BF16 and b.target == 'gfx1250' is never so",
            "b.target == 'gfx1250' becomes b.target != 'gfx1250'",
        ),
    },
}
EQUIVALENT = {
    f"{m}: {what}" for covered in EQUIVALENT_FOR.values() for m, changes in covered.items() for what in changes
}
