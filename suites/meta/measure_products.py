"""What torch's own products of matrices do on the processor that this runs on, as JSON on standard output.

It needs torch and narrowgauge's list of switches alone, and so runs beside any version of torch:

    python -m narrowgauge.suites.meta.measure_products

Each answer is read from a few numbers that are exact but for what is asked.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.kernels_under_test.torch_switches import SWITCHES, switched

#: rows, columns and K; place in K -> value, the same in all rows
SHAPES = {"4 x 4 x 64": (4, 4, 64), "64 x 64 x 64": (64, 64, 64)}
Row = Mapping[int, float]
Product = Callable[[Row, Row], float]
#: formats: bits of the fraction, and the least number
SOURCES = {"float32": (23, 2.0**-149), "bfloat16": (7, 2.0**-133), "float16": (10, 2.0**-24)}
#: what 1 + 3 · 2^-11 becomes where float32 operands are rounded
SPLIT = {1 + 3 * 2.0**-11: "float32", 1 + 2 * 2.0**-11: "tfloat32, cut", 1 + 4 * 2.0**-11: "tfloat32, nearest",
         1.0: "bfloat16"}  # fmt: skip
#: scales, and a sum of codes, of which each order of multiplying gives another float32
SCALES, SUM = (float.fromhex("0x1.867a5ep+0"), float.fromhex("0x1.0568c8p+0")), 612
WHERE = {0x446E4D83: "the sum, by a's first", 0x446E4D82: "the sum, by their product", 0x446E4D84:
         "the sum, by b's first", 0x446E4D7F: "the operands"}  # fmt: skip


def main() -> None:
    """Ask everything, and print what came back."""
    import torch

    warnings.filterwarnings("ignore")
    found = {
        "version": torch.__version__,
        "cpu": processor(torch),
        "products": {f"{source}, {name}": plain(torch, source, shape) for source in SOURCES for name, shape in
                     SHAPES.items()},
        "scaled": {name: told(partial(scaled, torch, *how)) for name, how in SCALED.items()},
        "others": {name: told(partial(call, torch)) for name, call in OTHERS.items()},
        "switches": {name: told(partial(under, torch, name)) for name in SWITCHES},
    }  # fmt: skip
    print(json.dumps(found))


def processor(torch: Any) -> str:
    """What the arithmetic of a product may depend on."""
    asked = {"AMX": "_is_amx_tile_supported", "AVX512_BF16": "_is_avx512_bf16_supported"}
    has = [name for name, call in asked.items() if getattr(torch.cpu, call, lambda: False)()]
    return " ".join((torch.backends.cpu.get_cpu_capability(), *has))


def told(call: Callable[[], str]) -> str:
    """What a call gives, or the first line of what it raises."""
    try:
        return call()
    except (NotExecuted, NotImplementedError, RuntimeError, ValueError) as error:
        return f"raises: {str(error).splitlines()[0].split('(')[0][:90].strip()}"


def matrix(torch: Any, values: Row, rows: int, columns: int, dtype: str) -> Any:
    """All rows alike."""
    row = [values.get(place, 0.0) for place in range(columns)]
    return torch.tensor(row, dtype=torch.float64).expand(rows, columns).to(getattr(torch, dtype)).contiguous()


def bits(torch: Any, number: Any) -> int:
    """The pattern of a float32."""
    return int(number.view(torch.int32)) & 0xFFFFFFFF


# --- plain numbers ---------------------------------------------------------------------------------------------------


def plain(torch: Any, source: str, shape: tuple[int, int, int]) -> dict[str, str]:
    """A product of one shape and format."""
    m, n, k = shape
    fraction, least = SOURCES[source]

    def product(a: Row, b: Row) -> float:
        return float((matrix(torch, a, m, k, source) @ matrix(torch, b, n, k, source).T)[0, 0].double())

    def biased(a: Row, b: Row) -> float:
        ones = torch.ones(n, dtype=getattr(torch, source))
        return float(torch.addmm(ones, matrix(torch, a, m, k, source), matrix(torch, b, n, k, source).T)[0, 0].double())

    half = 2.0 ** -(fraction + 1)  # of the last place of 1; a little more must go up
    split = {0: 2.0 ** -(fraction // 2), 1: 2.0**-7}, {0: half * 2.0 ** (fraction // 2), 1: half / 2}
    first, said = order(product, k)
    deep = [torch.ones(rows, 4096, dtype=getattr(torch, source)) for rows in (m, n)]
    return {
        "bits": str(kept(product, first, k)),
        "order": said,
        "with a bias": "rounded once" if biased(*split) > 1 else "rounded twice",
        "a subnormal operand": "kept" if product({0: least}, {0: 2.0**12}) == 2.0**12 * least else "0",
        "4,096 ones": f"{float((deep[0] @ deep[1].T)[0, 0]):g}",
    }


def kept(product: Product, first: int, k: int) -> int:
    """How many places below the 256 at 0 a term may stand that meets it first, and still be there behind -256."""
    there, last = 0, k - 1 if first != k - 1 else 1
    for t in range(1, 31):
        a, b = {0: 16.0, first: 2.0 ** (4 - t // 2), last: -16.0}, {0: 16.0, first: 2.0 ** (4 - t + t // 2), last: 16.0}
        if product(a, b) == 256 * 2.0**-t:
            there = t
    return there


def order(product: Product, k: int) -> tuple[int, str]:
    """Which term meets that at 0 first, and in words: by how many terms are gone when 2^30 at 0 meets -2^30 at another
    place."""
    big, unit = 2.0**15, 2.0**-6
    ones, gone = dict.fromkeys(range(k), unit), []
    for j in range(1, k):
        gone.append(round(k - product({**ones, 0: big, j: -big}, {**ones, 0: big, j: big}) / unit**2))
    first = min(range(1, k), key=lambda j: gone[j - 1])
    if gone == list(range(2, k + 1)):
        return first, "one after another"
    if gone[:4] == [2, 4, 3, 6] and max(gone) == k:
        return first, "pair after pair, the second of each first"
    return first, f"several sums at a time: 0 meets {first} first"


# --- scaled, whole and grouped ---------------------------------------------------------------------------------------

#: row scales, fast accumulation
SCALED = {"tensor": (False, False), "tensor, fast": (False, True), "row": (True, False), "row, fast": (True, True)}


def scaled(torch: Any, rows: bool, fast: bool) -> str:
    """Where torch._scaled_mm applies its scales."""
    places = dict.fromkeys(range(SUM // 16), 16.0) | {SUM // 16: float(SUM % 16)}
    a, b = matrix(torch, places, 16, 64, "float32"), torch.ones(16, 64)
    fp8 = torch.float8_e4m3fn
    shape = ((16, 1), (1, 16)) if rows else ((), ())
    by = [torch.full(size, scale) for size, scale in zip(shape, SCALES, strict=True)]
    made = torch._scaled_mm(a.to(fp8), b.to(fp8).T, *by, out_dtype=torch.float32, use_fast_accum=fast)
    return WHERE.get(bits(torch, made[0, 0]), "unknown")


def blocks(torch: Any) -> str:
    """1 x 128 and 128 x 128 blocks."""
    a = torch.ones(128, 256).to(torch.float8_e4m3fn)
    return str(torch._scaled_mm(a, a.T, torch.ones(128, 2), torch.ones(2, 1), out_dtype=torch.bfloat16).dtype)


def mx(torch: Any) -> str:
    """32 elements to a scale of e8m0."""
    a, scale = torch.ones(128, 128).to(torch.float8_e4m3fn), torch.ones(512).to(torch.float8_e8m0fnu)
    return str(torch._scaled_mm(a, a.T, scale, scale, out_dtype=torch.bfloat16).dtype)


def saturated(torch: Any) -> str:
    """16384 as a result of float8_e4m3fn."""
    a = torch.full((16, 64), 16.0).to(torch.float8_e4m3fn)
    made = torch._scaled_mm(a, a.T, torch.ones(()), torch.ones(()), out_dtype=torch.float8_e4m3fn)
    return f"{float(made[0, 0].float()):g}"


def of_fp8(torch: Any) -> str:
    """256 and 2^-9 and -256 by matmul, whose result is fp8: the least number of the format, if it is there."""
    a = matrix(torch, {0: 16.0, 1: 2.0**-4, 2: -16.0}, 16, 64, "float8_e4m3fn")
    b = matrix(torch, {0: 16.0, 1: 2.0**-5, 2: 16.0}, 16, 64, "float8_e4m3fn")
    return f"{float((a @ b.T)[0, 0].float()):g}"


def whole(torch: Any) -> str:
    """A sum of 2^31."""
    a = torch.full((32, 1 << 17), -128, dtype=torch.int8)
    return f"{int(torch._int_mm(a, a.T)[0, 0])}"


def one_column(torch: Any) -> str:
    """Of K = 1, b.T of a contiguous b [N, 1]: what an output that held 90 holds after it."""
    a, b = torch.ones(2, 1, dtype=torch.int8), torch.full((2, 1), 3, dtype=torch.int8)
    made = torch.full((2, 2), 90, dtype=torch.int32)
    torch._int_mm(a, b.T, out=made)
    return "unwritten" if int(made[0, 0]) == 90 else f"{int(made[0, 0])}"


def four_bits(torch: Any) -> str:
    """7 s - 7 · s of weights 7 and 1 under a scale s of bfloat16, of which 7 s is no bfloat16."""
    codes = torch.full((32, 128), 8, dtype=torch.int32)
    codes[:, 0], codes[:, 1] = 15, 9
    scales = torch.zeros(1, 32, 2, dtype=torch.bfloat16)
    scales[..., 0] = 1 + 2.0**-7
    x = matrix(torch, {0: 1.0, 1: -7.0}, 4, 128, "bfloat16")
    packed = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
    left = float(torch._weight_int4pack_mm_for_cpu(x, packed, 128, scales)[0, 0])
    return "weights not rounded" if left == 0 else f"weights rounded: {left:g} is left"


def grouped(torch: Any) -> str:
    """Rows of experts, in bfloat16."""
    ends = torch.tensor([2, 5], dtype=torch.int32)
    a, b = torch.ones(5, 64, dtype=torch.bfloat16), torch.ones(2, 64, 24, dtype=torch.bfloat16)
    return str(torch._grouped_mm(a, b, offs=ends).dtype)


def scaled_grouped(torch: Any) -> str:
    """Rows of experts, in fp8."""
    ends, fp8 = torch.tensor([16, 32], dtype=torch.int32), torch.float8_e4m3fn
    a, b = torch.ones(32, 64).to(fp8), torch.ones(2, 32, 64).to(fp8).transpose(1, 2)
    return str(torch._scaled_grouped_mm(a, b, torch.ones(32), torch.ones(2, 32), offs=ends).dtype)


def to_float32(torch: Any) -> str:
    """A product of bfloat16 whose result is float32."""
    a = torch.ones(16, 64, dtype=torch.bfloat16)
    return str(torch.mm(a, a.T, out_dtype=torch.float32).dtype)


OTHERS: dict[str, Callable[[Any], str]] = {
    "_scaled_mm, blocks of 128": blocks,
    "_scaled_mm, MX": mx,
    "_scaled_mm, 16384 to e4m3fn": saturated,
    "matmul of e4m3fn, 2^-9 between 256 and -256": of_fp8,
    "_int_mm, 2^17 products of 2^14": whole,
    "_int_mm, K = 1, b transposed": one_column,
    "_weight_int4pack_mm_for_cpu": four_bits,
    "_grouped_mm, bfloat16": grouped,
    "_scaled_grouped_mm, e4m3fn": scaled_grouped,
    "mm of bfloat16 to float32": to_float32,
}


# --- switches --------------------------------------------------------------------------------------------------------


def under(torch: Any, name: str) -> str:
    """What a switch makes of float32 operands, or of a sum of float16 and bfloat16."""
    source = SWITCHES[name].source
    with switched(name):
        if source == "float32":
            a, b = matrix(torch, {0: 1 + 3 * 2.0**-11}, 64, 64, source), matrix(torch, {0: 1.0}, 64, 64, source)
            return f"operands {SPLIT.get(float((a @ b.T)[0, 0]), 'unknown')}"
        a = torch.ones(64, 4096, dtype=getattr(torch, source))
        total = float((a @ a.T)[0, 0])
        return "sums float32" if total == 4096 else f"sums narrow, 4,096 ones are {total:g}"


if __name__ == "__main__":
    main()
