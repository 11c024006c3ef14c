"""Hardware instructions as pure functions of NumPy arrays, written from the words of the instruction sets.

Read for it on 2026-11-30, from stored public copies:

* PTX ISA 9.1: cvt, div, rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh (9.7.3.8 to 9.7.3.22), max (min is its mirror),
  and shfl of 9.0. The layouts of random bits of cvt.rs are pictures, which were not seen.
* AMD's CDNA4 ISA: V_MIN_F32, V_MAX_F32, V_MED3_F32, V_EXP_F32, V_LOG_F32, V_RCP_F32, V_CVT_PKRTZ_F16_F32,
  V_CVT_PK_FP8_F32 and its family, V_CVT_SCALEF32_*; the table of DPP_CTRL of GFX9; MODE.FP16_OVFL of RDNA3 and RDNA4.
* Third parties on hardware: B200 on the random bits of cvt.rs, RDNA4 on fp8 conversions.

Written from general knowledge of these texts: CDNA3's own wording (taken to be CDNA4's, with FNUZ), V_RSQ, V_SQRT,
V_MAXIMUM, V_MAX_NUM, the permutes and swaps, row_share and row_xmask. No ISA text says what the functions f32_to_fp8 of
its pseudo-code do on overflow: that is taken from MODE.FP16_OVFL. Nothing here was compared with a device by us.
"""
