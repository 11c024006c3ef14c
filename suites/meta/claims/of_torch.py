"""Claims about what torch does. The checks run in a child, since the process of the tests does not import torch.

As a program (``python -m narrowgauge.suites.meta.claims.of_torch``) it prints torch's version and what every check
found, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from narrowgauge.suites.meta.claims.claim import FALSE, TRUE, Before, Found, SeedClaim, claim, claims_in

of_torch = partial(claim, asks="torch")


def shown(tensor: Any) -> str:
    """The values of a tensor."""
    return ", ".join("NaN" if v != v else f"{v:g}" for v in tensor.float().flatten().tolist())


def refused(call: Callable[[], object]) -> str:
    """What a call raises: the class, and the message up to its first comma. "" if it does not."""
    try:
        call()
    except (RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0].split(',')[0]}"
    return ""


# --- casts -----------------------------------------------------------------------------------------------------------


@of_torch(
    "003:24", "1, 0.3, 500 as bf16, cast to float8_e4m3fn, are 1, 0.3125, NaN", FALSE, "1, 0.3125, 448",
    before=Before("2.13", TRUE, "1, 0.3125, NaN"),
)  # fmt: skip
def five_hundred(torch: Any) -> Found:
    got = shown(torch.tensor([1.0, 0.3, 500.0], dtype=torch.bfloat16).to(torch.float8_e4m3fn))
    return Found(got == "1, 0.3125, NaN", got)


@of_torch(
    "002:36", "An out-of-range cast to E4M3 gives NaN; do not count on saturation", FALSE,
    "1000, inf, -inf become 448, 448, -448",
    before=Before("2.13", TRUE, "1000, inf, -inf become NaN, NaN, NaN"),
)  # fmt: skip
def e4m3_overflow(torch: Any) -> Found:
    got = torch.tensor([1000.0, float("inf"), float("-inf")]).to(torch.float8_e4m3fn)
    return Found(bool(got.float().isnan().all()), f"1000, inf, -inf become {shown(got)}")


@of_torch("002:36", "In E5M2 an overflow can become infinity", TRUE, "60000, 61440, 1e5 become 57344, inf, inf")
def e5m2_overflow(torch: Any) -> Found:
    got = torch.tensor([60000.0, 61440.0, 1e5]).to(torch.float8_e5m2)
    return Found(bool(got.float().isinf().any()), f"60000, 61440, 1e5 become {shown(got)}")


@of_torch(
    "003:19", "What .to makes of a value out of range depends on the target: clamped, infinity or NaN", TRUE,
    "1e6 becomes 448 in e4m3fn, inf in e5m2, NaN in e4m3fnuz, inf in fp16",
    before=Before("2.13", TRUE, "1e6 becomes NaN in e4m3fn, inf in e5m2, NaN in e4m3fnuz, inf in fp16"),
)  # fmt: skip
def overflow_depends_on_the_target(torch: Any) -> Found:
    names = {"e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e4m3fnuz": torch.float8_e4m3fnuz}
    got = {name: shown(torch.tensor([1e6]).to(kind)) for name, kind in (names | {"fp16": torch.float16}).items()}
    return Found(len(set(got.values())) > 1, "1e6 becomes " + ", ".join(f"{v} in {name}" for name, v in got.items()))


@of_torch(
    "000:5", "A format that cannot hold a number does not raise", TRUE, "no cast of 1e6, 1e-8, inf to 6 formats raises"
)
def casts_do_not_raise(torch: Any) -> Found:
    names = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    x = torch.tensor([1e6, 1e-8, float("inf")])
    raised = [name for name in names if refused(lambda name=name: x.to(getattr(torch, name)))]  # type: ignore[misc]
    return Found(raised == [], f"{'no' if not raised else 'a'} cast of 1e6, 1e-8, inf to {len(names)} formats raises")


@of_torch("002:23", "torch.finfo's max is 448 for e4m3fn, 57344 for e5m2, 240 for e4m3fnuz", TRUE, "448, 57344, 240")
def finfo(torch: Any) -> Found:
    got = [torch.finfo(getattr(torch, f"float8_{name}")).max for name in ("e4m3fn", "e5m2", "e4m3fnuz")]
    return Found(got == [448, 57344, 240], ", ".join(f"{v:g}" for v in got))


@of_torch("003:19", ".to writes into new storage, one byte to an element of fp8", TRUE, "new storage, 1 byte")
def to_writes_new_storage(torch: Any) -> Found:
    x = torch.ones(3, dtype=torch.bfloat16)
    y = x.to(torch.float8_e4m3fn)
    new = x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr()
    return Found(new and y.element_size() == 1, f"{'new' if new else 'the same'} storage, {y.element_size()} byte")


@of_torch(
    "000:206", "The quoted MXFP4 code clips nothing, its scale being rounded up", FALSE,
    "log2 of a bf16 tensor is rounded to bf16: 18.1 % of all bf16 amax stand above 6, up to 7.15625; of a float32 "
    "tensor up to 6"
)  # fmt: skip
def quoted_mxfp4_scale(torch: Any) -> Found:
    """The article's steps for every bf16 amax, as a tensor of blocks whose largest element is that amax."""
    parts = []
    for kind in (torch.bfloat16, torch.float32):
        amax = torch.arange(1, 0x7F80, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).to(kind)
        exponent = torch.ceil(torch.maximum(torch.log2(amax / 6.0), torch.tensor(-127.0)))
        stands = (amax / torch.exp2(exponent)).float()
        parts.append(((stands > 6).float().mean().item(), stands.max().item()))
    (share, most), (_, wide) = parts
    text = (
        f"log2 of a bf16 tensor is rounded to bf16: {100 * share:.1f} % of all bf16 amax stand above 6, up to {most:g}"
    )
    return Found(most <= 6, f"{text}; of a float32 tensor up to {wide:g}")


# --- views -----------------------------------------------------------------------------------------------------------


@of_torch(
    "003:26", "bf16 viewed as uint8 shares the storage, has the shape [6], and reads 128 63 154 62 250 67", TRUE,
    "shared, [6], 128 63 154 62 250 67"
)  # fmt: skip
def view_as_bytes(torch: Any) -> Found:
    x = torch.tensor([1.0, 0.3, 500.0], dtype=torch.bfloat16)
    seen = x.view(torch.uint8)
    shared = seen.data_ptr() == x.data_ptr()
    text = f"{'shared' if shared else 'copied'}, {list(seen.shape)}, {' '.join(map(str, seen.tolist()))}"
    return Found(text == "shared, [6], 128 63 154 62 250 67", text)


@of_torch(
    "003:19", "A view of another element size needs stride(-1) == 1", TRUE,
    "RuntimeError: self.stride(-1) must be 1 to view Float as Byte (different element sizes)"
)  # fmt: skip
def view_needs_stride_one(torch: Any) -> Found:
    raised = refused(lambda: torch.arange(8.0).as_strided((2,), (2,)).view(torch.uint8))
    return Found("stride(-1) must be 1" in raised, raised)


@of_torch(
    "003:92",
    "uint8 viewed as float8_e8m0fnu and cast to float32 gives the power of two; 127 is 1",
    TRUE,
    "127, 128, 0, 255 are 1, 2, 5.87747e-39, NaN",
)
def e8m0_by_view(torch: Any) -> Found:
    got = torch.tensor([127, 128, 0, 255], dtype=torch.uint8).view(torch.float8_e8m0fnu).float()
    return Found(got[:2].tolist() == [1, 2], f"127, 128, 0, 255 are {shown(got)}")


@of_torch(
    "003:107",
    "An fp8 tensor becomes uint8 by a view, without a copy, and comes back the same",
    TRUE,
    "no copy; all 256 codes come back",
)
def fp8_stored_as_bytes(torch: Any) -> Found:
    codes = torch.arange(256, dtype=torch.uint8)
    back = codes.view(torch.float8_e5m2).view(torch.uint8)
    same = back.data_ptr() == codes.data_ptr()
    kept = int((back == codes).sum())
    return Found(same and kept == 256, f"{'no' if same else 'a'} copy; all {kept} codes come back")


@of_torch(
    "003:60", "float4_e2m1fn_x2 holds two values in an element of one byte, to be stored and viewed", TRUE,
    "1 byte; to float32 NotImplementedError, + NotImplementedError; view and clone work"
)  # fmt: skip
def fp4_is_bytes(torch: Any) -> Found:
    x = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    raised = [refused(call).split(":")[0] for call in (x.float, lambda: x + x)]
    works = not refused(lambda: x.clone().view(torch.uint8))
    text = (
        f"{x.element_size()} byte; to float32 {raised[0]}, + {raised[1]}; view and clone {'work' if works else 'raise'}"
    )
    return Found(x.element_size() == 1 and all(raised) and works, text)


@of_torch(
    "000:315", "torch.float4_e2m1fn_x2 needs torch 2.8", TRUE, "there", before=Before("2.8", TRUE, "absent"),
)  # fmt: skip
def fp4_exists(torch: Any) -> Found:
    there = hasattr(torch, "float4_e2m1fn_x2")
    new = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)
    return Found(there == new, "there" if there else "absent")


# --- what works on which type ----------------------------------------------------------------------------------------


@of_torch("003:52", "bf16 + float32 is float32, without a word", TRUE, "torch.float32")
def promotion(torch: Any) -> Found:
    got = (torch.ones(2, dtype=torch.bfloat16) + torch.ones(2)).dtype
    return Found(got == torch.float32, str(got))


@of_torch(
    "003:57", "float8_e4m3fn + 1.0 is not implemented: a RuntimeError about add_stub", TRUE,
    "NotImplementedError (a RuntimeError): \"add_stub\" not implemented for 'Float8_e4m3fn'"
)  # fmt: skip
def fp8_plus_number(torch: Any) -> Found:
    raised = refused(lambda: torch.zeros(4).to(torch.float8_e4m3fn) + 1.0)
    text = raised.replace("NotImplementedError", "NotImplementedError (a RuntimeError)")
    return Found('"add_stub" not implemented' in raised, text)


@of_torch(
    "003:58", "float8_e4m3fn + float32 raises: fp8 is not promoted", TRUE,
    "RuntimeError: Promotion for Float8 Types is not supported"
)  # fmt: skip
def fp8_plus_float32(torch: Any) -> Found:
    raised = refused(lambda: torch.zeros(4).to(torch.float8_e4m3fn) + torch.zeros(4))
    return Found("Promotion for Float8 Types is not supported" in raised, raised)


@of_torch(
    "003:54",
    "Most ordinary operators are not implemented for fp8",
    TRUE,
    "of 20 asked, 16 raise; abs, isnan, == and matmul work",
)
def fp8_operators(torch: Any) -> Found:
    x = torch.ones(2, 2).to(torch.float8_e4m3fn)
    single = ("abs", "isnan", "neg", "exp", "sqrt", "tanh", "relu", "round")
    whole = ("sum", "mean", "amax", "max", "argmax", "sort")
    calls: dict[str, Callable[[], object]] = {name: getattr(x, name) for name in (*single, *whole)} | {
        "+": lambda: x + x,
        "-": lambda: x - x,
        "/": lambda: x / x,
        "<": lambda: x < x,
        "==": lambda: x == x,
        "matmul": lambda: x @ x,
    }
    works = [name for name, call in calls.items() if not refused(call)]
    text = f"of {len(calls)} asked, {len(calls) - len(works)} raise; {', '.join(works[:-1])} and {works[-1]} work"
    return Found(2 * len(works) < len(calls), text)


@of_torch(
    "003:100", "index_put is not implemented for float8_e5m2, so engines store uint8", FALSE, "it works (on a CPU)"
)
def index_put(torch: Any) -> Found:
    x, at = torch.zeros(4).to(torch.float8_e5m2), (torch.tensor([1]),)
    raised = refused(lambda: x.index_put_(at, torch.ones(1).to(torch.float8_e5m2)))
    works = not raised and x.float().tolist() == [0, 1, 0, 0]
    return Found(bool(raised), "it works (on a CPU)" if works else raised)


@of_torch(
    "000:74", "torch's own rms_norm makes the whole row NaN after one infinity", FALSE, "0, 0, 0, NaN, 0, 0, 0, 0"
)
def rms_norm_of_torch(torch: Any) -> Found:
    x = torch.ones(8)
    x[3] = float("inf")
    got = torch.nn.functional.rms_norm(x, (8,))
    return Found(bool(got.isnan().all()), shown(got))


@of_torch(
    "002:36", "Clamping before the cast saturates whatever the cast does", TRUE, "1000, inf, NaN become 448, 448, NaN"
)
def clamp_then_cast(torch: Any) -> Found:
    got = torch.tensor([1000.0, float("inf"), float("nan")]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return Found(got[:2].float().tolist() == [448, 448], f"1000, inf, NaN become {shown(got)}")


CLAIMS: tuple[SeedClaim, ...] = claims_in(globals())


def answer(claimed: SeedClaim, torch: Any) -> Found:
    """What a check finds; a torch that lacks what it asks about ends one check, not all of them."""
    try:
        return claimed.check(torch)
    except (AttributeError, RuntimeError, TypeError) as error:
        return Found(False, f"{type(error).__name__}: {error}")


def main() -> None:
    """Run every check with the installed torch."""
    import torch

    print(json.dumps({"version": torch.__version__, "found": {c.name: answer(c, torch) for c in CLAIMS}}))


if __name__ == "__main__":
    main()
