"""A standalone script for a product of matrices: no cut of a call is one, so it holds the whole call, or reads it."""

from __future__ import annotations

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.verdict import Verdict
from narrowgauge.reference.memory import in_memory, to_memory
from narrowgauge.suites.script_lines import bits_of, head, shown, tensor, typed

#: characters of all tensors that a script holds itself
LARGEST = 1 << 14
#: what a script reads that holds no tensors: as `narrowgauge inputs` writes it
FILE = "inputs.safetensors"
READER = f"""\
# (with --depth where the case is of a deeper run; what hypothesis drew is in a report alone)
import json, struct
raw = open({FILE!r}, "rb").read()
start = 8 + struct.unpack("<Q", raw[:8])[0]
about = json.loads(raw[8:start])
def stored(name, kind):
    first, past = about[name]["data_offsets"]
    return np.frombuffer(raw[start + first : start + past], kind).reshape(about[name]["shape"])""".splitlines()


def of_a_product(plugged: Plugged, claim: Claim, target: str, case: str, x: Coded, verdict: Verdict) -> str:
    """The script. It shows the first elements that differ, beside what is expected of them."""
    sent = to_memory(claim, x)
    tensors = {"x": sent, **given_with(sent)}
    lines = {name: tensor(plugged, name, value.format, value.data) for name, value in tensors.items()}
    before: list[str] = []
    if sum(len(line) for each in lines.values() for line in each) > LARGEST:
        before = [
            f"# {FILE} lies beside this script in a report; else: narrowgauge inputs '{claim}' -o {FILE}",
            *READER,
        ]
        lines = {name: typed(plugged, name, v.format, _stored(case, name, v)) for name, v in tensors.items()}
    name, (output, format_name) = plugged.kernel.name, next(iter(in_memory(claim, x).outputs.items()))
    asked = {"source": claim.source, "shape": tuple(in_memory(claim, x).shape)}
    beside = "".join(f", {given}={given}" for given in tensors if given != "x")
    called = (
        f"{name}(x, {claim.format!r}{beside}, **{{n: asked[n] for n in asked if n in takes}})"
        if not plugged.kernel.expression
        else plugged.kernel.expression.replace("{format}", claim.format)
    )
    takes = f"import inspect; takes, asked = inspect.signature({name}).parameters, {asked!r}"
    return "\n".join(
        [
            *head(plugged, f"{name}: {claim} on {target}, case {case}", target),
            *before,
            *(line for each in lines.values() for line in each),
            *([] if plugged.kernel.expression else [takes]),
            f"out = {called}",
            f"out = out[{output!r}] if isinstance(out, dict) else out[0] if isinstance(out, tuple) else out",
            f"got = {bits_of(plugged, 'out', format_name)}",
            *shown("got", (m for m in verdict.mismatches if m.output == output), lambda m: m.index),
        ]
    )


def _stored(case: str, name: str, value: Coded) -> str:
    """An expression for the codes of a tensor of the file."""
    return f'stored("{case}.{name}", "{format_named(value.format).storage.str}")'
