"""The words in the README.txt of an export."""

README = """\
Golden vectors of narrowgauge: the expected codes of casts, decodings and quantizers, as data for any language.

Codes and patterns are the bits of one element as unsigned integers, little-endian, one element to 1, 2 or 4 bytes
(formats of 4 and 6 bits: one code to a byte). manifest.json has sha256, length and authority of every file.

A family is one rule at one destination format: cast-RULE-FORMAT, stochastic-RULE-FORMAT, quantize-RULE-FORMAT, or
decode-FORMAT; kv_write-CACHE-FORMAT and kv_read-CACHE-FORMAT are calls on a key-value cache that holds codes of FORMAT;
convert-CONVERSION-FORMAT are calls of a converter of checkpoints, matmul-PRODUCT-FORMAT products of matrices.

safetensors/FAMILY.safetensors   all tables of a family as U8, U16 and U32
npy/FAMILY/TABLE.npy             the same, a file per table, for numpy and its readers
raw/FAMILY/TABLE.u8 .u16 .u32    the same as bare numbers of so many bits, without a header
json/FAMILY.json                 edge cases by name: value, pattern, expected code, why (of a decoding: every code)
header/FAMILY.h                  C99 and C++: the whole cast as ng_expected_RULE_FORMAT_from_SOURCE(pattern),
                                 the decoding as ng_decode_FORMAT(code); no dependencies
Quantizers, stochastic casts, calls and matrix units have no json and no header.

TABLE is SOURCE.PART:

codes    for bfloat16 and float16 sources: the code of each of the 65,536 patterns, in their order
values   of a decoding: the float32 pattern of each code, in their order
first, code
         for a float32 source, all 2^32 patterns as runs of equal codes: the first pattern of each run, ascending from
         0, and its code. The expected code of a pattern is that of the last run that begins at or before it:
             i = upper_bound(first, first + n, pattern) - first - 1;  expected = code[i];
first, stride, count, code, rise
         the same to a destination of more than 8 bits, where runs are evenly spaced: stairs. A stair is count runs, the
         first at pattern first with this code, each next one stride patterns and rise codes further. The expected
         code of a pattern is that of the last run, of any stair, that begins at or before it; stairs overlap:
             best = 0
             for each stair with first <= pattern:
                 k = min((pattern - first) / stride, count - 1)
                 if first + k * stride >= best:  best = first + k * stride;  expected = code + k * rise
x, bits, code
         of stochastic rounding: an input, 8 random bits, the code. The magnitude goes to the next code where the way
         past the code below it, in 256ths and cut, plus the bits reaches 256. Elsewhere as RULE says.
x, codes, scale, global_scale
         of a quantizer: its input [rows, columns], its codes, the scale of each of its blocks (docs/recipes.md) as a
         float32 pattern, an E8M0 or an E4M3 code, and of NVFP4 the float32 scale of the tensor
x, v, slot_mapping, k_cache.before, k_cache.after, k_scale, extent, ...
         of kv_write: what a kernel is handed, by the names of its parameters, and its caches before and after it.
         extent has heads, slots of a page, slots of the cache, and the columns of each part of a token. A token whose
         number in slot_mapping is negative is padding and leaves the cache alone; of SGLang's caches it is slot 0,
         and what then stands in slot 0 is not compared
x, v_cache, block_table, seq_lens, k_scale, k, v, extent, ...
         of kv_read: the first cache is x; k and v are the values of all sequences, one after the other, bfloat16
x, scale, zero_point, widths, ..., shape, after.codes, after.scale, ...
         of convert: what a converter is handed and what it gives, as they stand in memory (docs/conversions.md), and
         rows and columns of the codes as a matrix
x, b, a_scale, b_scale, b_zero_point, bias, experts, ..., shape, result
         of matmul: x is a; the rest is what a kernel is handed, by the names of docs/products.md, packed operands as
         they stand in memory; shape is M, N and K. result [M, N] is what every order of every sum gives, in an
         accumulator of 14 bits or more: y[m, n] is the sum over k of a[m, k] times b[n, k], scaled as PRODUCT says

unit-OPERANDS-RESULT (scales behind a dot) has no sources: a, b [n, 64] and c [n] are the operands and addends of dot
products that tell matrix units apart, a_scale and b_scale the scales of their blocks, and under the name of each unit
stand its results (docs/units.md)

Where the expected code is a NaN, any NaN of the destination format is right, of any sign and payload. Everything else
is compared bit by bit; there is no tolerance.
"""

ALIKE = """\
Rules that make the same choices at a destination share a family, which has the name of the first of them. So the
vectors of onnx_saturate at float8_e4m3fn are those of the family below which onnx_saturate stands here:
"""
