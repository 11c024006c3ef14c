"""Mutations of the emulator's models and opcodes that no test can notice, with the reason."""

# ruff: noqa: E501  a mutant is listed as the run prints it

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
        "amd_plain": (
            "_key(a) > _key(b) becomes _key(a) >= _key(b)",
            "_key(a) < _key(b) becomes _key(a) <= _key(b)",
        ),
        "nvidia_approx": ("value > 0.5 becomes value >= 0.5", "value < 2 becomes value <= 2"),
    },
    "where NaN is the only answer both ends are that NaN, and where there is one answer both are that": {
        "answers": ("self.open() & ~_is_nan(self.first) becomes self.open() | ~_is_nan(self.first)",),
    },
    "a key only orders: all negative ones stay below zero": {"amd_plain": ("1 becomes 2 in -1",)},
    "what is exact is left as it is": {
        "rounding_ieee": ("np.abs(near) > np.abs(x) becomes np.abs(near) >= np.abs(x)",),
    },
    "what operands hold, and what is open, are words for people: they are said and not computed with": {
        "amd": (
            "('f32', 'f32') if kind == 'f32' else (f'{kind}x2',) becomes (f'{kind}x2',) if kind == 'f32' else ('f32', 'f32')",
            "kind == 'f32' becomes kind != 'f32'",
            "('scale', 'old', 'place') if fp4 else ('scale', 'old', 'place', 'ovfl') becomes ('scale', 'old', 'place', 'ovfl') if fp4 else ('scale', 'old', 'place')",
            "'a NaN: the largest with its sign in first, else zero or either largest' if fp4 else OF_INFINITY becomes OF_INFINITY if fp4 else 'a NaN: the largest with its sign in first, else zero or either largest'",
            "(*['f32'] * 8, 'scale') if fp4 else (*['f32'] * 8, 'scale', 'ovfl') becomes (*['f32'] * 8, 'scale', 'ovfl') if fp4 else (*['f32'] * 8, 'scale')",
            "'b32' if fp4 else 'b32, b32' becomes 'b32, b32' if fp4 else 'b32'",
            "('b32', 'scale') if fp4 else ('b32', 'b32', 'scale') becomes ('b32', 'b32', 'scale') if fp4 else ('b32', 'scale')",
            "'scale' becomes 'amax' in ('scale', 'old', 'place')",
            "'scale' becomes 'amax' in ('scale', 'old', 'place', 'ovfl')",
            "OF_SEED if family == 'gfx12' else OF_LITERAL becomes OF_LITERAL if family == 'gfx12' else OF_SEED",
            "'scale' becomes 'amax' in (*['f32'] * 8, 'scale')",
            "'scale' becomes 'amax' in (*['f32'] * 8, 'scale', 'ovfl')",
            "'a NaN' if fp4 else OF_INFINITY becomes OF_INFINITY if fp4 else 'a NaN'",
            "'scale' becomes 'amax' in ('b32', 'scale')",
            "'scale' becomes 'amax' in ('b32', 'b32', 'scale')",
            "8 becomes 9 in [kind] * 8",
            "'scale' becomes 'amax' in ('b32', 'scale', 'place')",
            "family == 'gfx12' becomes family != 'gfx12'",
            "8 becomes 9 in ['f32'] * 8",
        ),
    },
    "a code is read by its own bits, whatever stands above them": {"amd": ("1 becomes 2 in 1 << width",)},
    "choices are as many for each": {"amd": ("True becomes False in strict=True",)},
    "every format that is converted to has a NaN": {"amd": ("0 becomes 1 in out.nan or 0",)},
    "a fifth code of eight bits would be shifted beyond the word": {"amd": ("4 becomes 5 in i + 4",)},
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
