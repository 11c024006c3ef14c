"""A C header of a family: static tables and a look-up function, for C99 and for C++, without any dependency."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.golden.families import Family, Tensors, authority, form_of
from narrowgauge.golden.using import stairs_of, steps_of

#: shared by all headers, of which a program may include several
_SHARED = """\
#ifndef NARROWGAUGE_LOOK_UP
#define NARROWGAUGE_LOOK_UP
/* count steps: the first at pattern first with this code, each next one stride patterns and rise codes further */
struct ng_stair { uint32_t first, stride, count, code, rise; };

/* the last run that begins at or before a pattern; first[0] is 0 */
static inline size_t ng_run(const uint32_t *first, size_t runs, uint32_t pattern) {
    size_t low = 0, high = runs;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (first[middle] <= pattern) low = middle; else high = middle;
    }
    return low;
}

/* the code of the last step of any stair that begins at or before a pattern */
static inline uint32_t ng_step(const struct ng_stair *stairs, size_t count, uint32_t pattern) {
    uint32_t best = 0, code = stairs[0].code;
    size_t i;
    for (i = 0; i < count && stairs[i].first <= pattern; ++i) {
        uint32_t step = (pattern - stairs[i].first) / stairs[i].stride;
        if (step >= stairs[i].count) step = stairs[i].count - 1;
        if (stairs[i].first + step * stairs[i].stride >= best) {
            best = stairs[i].first + step * stairs[i].stride;
            code = stairs[i].code + step * stairs[i].rise;
        }
    }
    return code;
}
#endif
"""
_PER_LINE = 12


def header(family: Family, tensors: Tensors) -> str:
    """The text of a cast or decode family's header. Functions are named ``ng_expected_RULE_FORMAT_from_SOURCE``."""
    guard = f"NARROWGAUGE_{_identifier(family.name).upper()}_H"
    parts = [
        f"/* {family.name}: written by 'narrowgauge golden export'; the expectation rests on\n"
        f"   {authority(family)}\n"
        "   Patterns and codes are bits as unsigned integers. For an expected NaN any NaN of the format is right.\n"
        "*/",
        f"#ifndef {guard}\n#define {guard}\n#include <stddef.h>\n#include <stdint.h>\n",
        _SHARED,
        *(_claim(claim, tensors) for claim in family.claims),
        "#endif\n",
    ]
    return "\n".join(parts)


def _claim(claim: Claim, tensors: Tensors) -> str:
    name = _identifier(f"{claim.rule}_{claim.format}_from_{claim.source}")
    given, code = (f"uint{8 * format_named(f).storage.itemsize}_t" for f in (claim.source, claim.format))
    match form_of(claim):
        case "table":
            name = claim.source
            values = _array(code, f"ng_value_{name}", _numbers(tensors[f"{name}.values"].codes))
            mask = f"code & {format_named(name).code_count - 1:#x}u"
            body = f"static inline {code} ng_decode_{name}({given} code) {{ return ng_value_{name}[{mask}]; }}\n"
            return f"/* the bits of the float32 value of each code of {name} */\n{values}{body}"
        case "stairs":
            stairs = stairs_of(claim, tensors)
            rows = (f"{{{', '.join(_numbers(row))}}}" for row in stairs.T)
            tables = _array("struct ng_stair", f"ng_stairs_{name}", rows, per_line=2)
            look = f"ng_step(ng_stairs_{name}, {stairs.shape[1]}, pattern)"
        case _:
            first, codes = steps_of(claim, tensors)
            tables = _array("uint32_t", f"ng_first_{name}", _numbers(first))
            tables += _array(code, f"ng_code_{name}", _numbers(codes))
            look = f"ng_code_{name}[ng_run(ng_first_{name}, {first.size}, pattern)]"
    body = f"static inline {code} ng_expected_{name}({given} pattern) {{ return ({code}){look}; }}\n"
    return f"/* {claim} */\n{tables}{body}"


def _numbers(numbers: np.typing.NDArray[np.integer]) -> list[str]:
    return [f"{number:#x}u" for number in numbers.tolist()]


def _array(kind: str, name: str, entries: Iterable[str], per_line: int = _PER_LINE) -> str:
    listed = list(entries)
    return f"static const {kind} {name}[{len(listed)}] = {{\n{''.join(_lines(listed, per_line))}}};\n"


def _lines(entries: list[str], per_line: int) -> Iterator[str]:
    for start in range(0, len(entries), per_line):
        yield f"    {', '.join(entries[start : start + per_line])},\n"


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)
