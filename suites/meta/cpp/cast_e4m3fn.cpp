// A cast from float32 to float8_e4m3fn (OCP, saturating), judged without Python: by a header and a raw table of
// "narrowgauge golden export", and as a program that "narrowgauge judge --stream" asks.
//
//   g++ -std=c++17 -O2 -I vectors/header cast_e4m3fn.cpp -o cast_e4m3fn
//   ./cast_e4m3fn check vectors/raw
//   narrowgauge judge --stream cast/ocp_saturate/float32/float8_e4m3fn -- ./cast_e4m3fn stream
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "cast-ocp_saturate-float8_e4m3fn.h"

// The code under test: the bits of a float32 become a code.
static std::uint8_t cast(std::uint32_t bits) {
    const std::uint8_t sign = (bits >> 24) & 0x80;
    const std::uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7f | sign;   // NaN
    if (magnitude >= 0x43e80000) return 0x7e | sign;  // 464, the tie of 448 and what would come next, and beyond
    if (magnitude < 0x3a800000) return sign;          // below 2^-10, half of the smallest subnormal
    const int field = static_cast<int>(magnitude >> 23);
    const std::uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    // Float32 has 20 bits more than a normal of e4m3fn; below 2^-6, whose field is 121, the spacing stays.
    const int below = field < 121 ? 121 - field : 0;
    const int cut = 20 + below;
    const std::uint32_t kept = significand >> cut, rest = significand & ((1u << cut) - 1), half = 1u << (cut - 1);
#ifdef WRONG_TIES
    const std::uint32_t up = rest >= half;
#else
    const std::uint32_t up = rest > half || (rest == half && (kept & 1));
#endif
    // The implicit bit of a normal adds one to the exponent field, and so does a carry out of the significand.
    const std::uint32_t exponent = below ? 0 : static_cast<std::uint32_t>(field - 121);
    return static_cast<std::uint8_t>((exponent << 3) + kept + up) | sign;
}

// NaN is compared as a class: of any sign.
static bool same(std::uint8_t got, std::uint8_t want) {
    return got == want || ((got & 0x7f) == 0x7f && (want & 0x7f) == 0x7f);
}

static int wrong = 0;

static void compare(std::uint32_t bits, std::uint8_t want) {
    const std::uint8_t got = cast(bits);
    if (same(got, want)) return;
    if (++wrong <= 5) std::printf("0x%08" PRIx32 " gives 0x%02x; expected 0x%02x\n", bits, got, want);
}

// Both ends of every run of the header, and what its look-up gives there: with that all 2^32 inputs, if the cast is
// monotone. And every bfloat16 value, by the raw table: its pattern is the upper half of a float32's.
static int check(const std::string &raw) {
    const std::size_t runs = sizeof ng_first_ocp_saturate_float8_e4m3fn_from_float32 / sizeof(std::uint32_t);
    for (std::size_t i = 0; i < runs; ++i) {
        const std::uint32_t first = ng_first_ocp_saturate_float8_e4m3fn_from_float32[i];
        compare(first, ng_expected_ocp_saturate_float8_e4m3fn_from_float32(first));
        compare(first - 1, ng_expected_ocp_saturate_float8_e4m3fn_from_float32(first - 1));
    }
    const std::string path = raw + "/cast-ocp_saturate-float8_e4m3fn/bfloat16.codes.u8";
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> table((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (table.size() != 65536) {
        std::fprintf(stderr, "%s has %zu bytes; expected 65536\n", path.c_str(), table.size());
        return 2;
    }
    for (std::uint32_t pattern = 0; pattern < 65536; ++pattern)
        compare(pattern << 16, static_cast<std::uint8_t>(table[pattern]));
    std::printf("%d of %zu differ\n", wrong, 2 * runs + table.size());
    return wrong ? 1 : 0;
}

// One pattern to a line comes in, one code to a line goes out, in the same order; no flush is needed.
static int stream() {
    std::uint32_t bits;
    while (std::scanf("%" SCNx32, &bits) == 1) std::printf("%02x\n", cast(bits));
    return 0;
}

// The same in words: four bytes in, one byte out (little-endian machines).
static int binary() {
    std::uint32_t bits;
    while (std::fread(&bits, sizeof bits, 1, stdin) == 1) std::putchar(cast(bits));
    return 0;
}

int main(int count, char **words) {
    const std::string mode = count > 1 ? words[1] : "";
    if (mode == "check" && count == 3) return check(words[2]);
    if (mode == "stream") return stream();
    if (mode == "binary") return binary();
    std::fprintf(stderr, "usage: %s check RAW | stream | binary\n", words[0]);
    return 2;
}
