"""What torch's own products of matrices do on the processor that this runs on, as JSON on standard output.

A program of its own, beside any version of torch (narrowgauge on the path for its list of switches):

    python -m narrowgauge.suites.meta.measure_products

Each answer is read from a few numbers that are exact but for what is asked.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.kernels_under_test.torch_switches import SWITCHES, switched

SHAPES = {"small": (4, 4, 64), "large": (64, 64, 64)}
SOURCES = ("float32", "bfloat16", "float16")
#: a number that float32 holds, and what becomes of it in what operands may be rounded to
SPLIT = {1 + 3 * 2.0**-11: "float32", 1 + 2 * 2.0**-11: "tfloat32, cut", 1 + 4 * 2.0**-11: "tfloat32, rounded",
         1.0: "bfloat16"}  # fmt: skip
#: fractions of bits of a bfloat16 and a float16
FRACTION = {"bfloat16": 7, "float16": 10, "float32": 23}
LEAST = {"bfloat16": 2.0**-133, "float16": 2.0**-24, "float32": 2.0**-149}
#: scales, and a sum of codes, of which each order of multiplying gives another float32
SCALES, SUM = (1.5253047943115234, 1.0211081504821777), 612
ORDERS = {0x446E4D83: "sum, by a first", 0x446E4D82: "sum, by both at once", 0x446E4D84: "sum, by b first",
          0x446E4D7F: "operands"}  # fmt: skip


def main() -> None:
    """Ask everything, and print what came back."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(2)
    found = {
        f"{source}, {shape}": plain(torch, source, *size) for source in SOURCES for shape, size in SHAPES.items()
    }
    scaled = {f"{kind}{' fast' if fast else ''}": scale_site(torch, kind, fast) for kind in ("tensor", "row")
              for fast in (False, True)}  # fmt: skip
    switches = {name: under(torch, name) for name in SWITCHES}
    print(json.dumps({
        "version": torch.__version__, "cpu": processor(torch), "products": found, "scaled": scaled,
        "int8": told(lambda: whole(torch)), "switches": switches,
    }))  # fmt: skip


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
        return f"raises: {str(error).splitlines()[0][:90]}"


# --- plain numbers ---------------------------------------------------------------------------------------------------


def plain(torch: Any, source: str, m: int, n: int, k: int) -> dict[str, str]:
    """A product of one shape."""

    def multiply(a: dict[int, float], b: dict[int, float]) -> float:
        return float(torch_of(a, m) @ torch_of(b, n).T)  # replaced below

    def torch_of(values: dict[int, float], rows: int) -> Any:
        matrix = torch.zeros(rows, k, dtype=torch.float64)
        for place, value in values.items():
            matrix[:, place] = value
        return matrix.to(getattr(torch, source))

    def product(a: dict[int, float], b: dict[int, float]) -> float:
        result = torch_of(a, m) @ torch_of(b, n).T
        return float(result[0, 0].double())

    def biased(a: dict[int, float], b: dict[int, float]) -> float:
        bias = torch.ones(n, dtype=getattr(torch, source))
        return float(torch.addmm(bias, torch_of(a, m), torch_of(b, n).T)[0, 0].double())

    last = 2.0 ** -(FRACTION[source] + 1)  # half of the last place of 1
    halves = {0: last, 1: 2.0**-9}, {0: 1.0, 1: last}
    low = LEAST[source]
    return {
        "bits": str(kept(product)),
        "order": order(product, k),
        "bias": "rounded once" if biased(*halves) > 1 else "rounded twice",
        "subnormal operands": "kept" if product({0: low}, {0: 64.0}) == 64 * low else "0",
        "60000 + 60000 - 60000": f"{product({0: 60000.0, 32: 60000.0, 63: 60000.0}, {0: 1.0, 32: 1.0, 63: -1.0}):g}",
    }


def kept(product: Callable[[dict[int, float], dict[int, float]], float]) -> int:
    """How many bits below 256 a term may stand, between 256 and -256, and still be there."""
    place = 0
    for t in range(1, 31):
        small = {0: 16.0, 1: 2.0 ** (4 - t // 2), 2: -16.0}, {0: 16.0, 1: 2.0 ** (4 - t + t // 2), 2: 16.0}
        if product(*small) == 256 * 2.0**-t:
            place = t
    return place


def order(product: Callable[[dict[int, float], dict[int, float]], float], k: int) -> str:
    """From how many terms are gone when 2^30 at 0 meets -2^30 at each other place: which terms are added first."""
    big, unit = 2.0**15, 2.0**-6
    ones = dict.fromkeys(range(k), unit)
    gone = []
    for j in range(1, k):
        value = product({**ones, 0: big, j: -big}, {**ones, 0: big, j: big})
        gone.append(round(k - value / unit**2))
    if gone == list(range(2, k + 1)):
        return "one after another"
    if gone == [j + 2 if j % 2 == 0 else j + 1 - (j > 1) for j in range(1, k)] or gone[:4] == [2, 4, 3, 6]:
        return "pairs, the second of each first"
    first = min(range(1, k), key=lambda j: gone[j - 1])
    return f"several sums; 0 is first joined by {first}"
