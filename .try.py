import time, numpy as np
from narrowgauge.contracts.operations import *
from narrowgauge.reference.inputs import CASES
from narrowgauge.reference.expected import expected
from narrowgauge.reference.memory import to_memory
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.caches import CACHES
F={"vllm.flash_copy":"bfloat16","vllm.flash_fp8":"float8_e4m3fn","vllm.flash_fp8_hnd":"float8_e5m2","vllm.flash_fp8_head":"float8_e4m3fn","vllm.fp8_token_head":"float8_e4m3fn","vllm.fp8_ds_mla":"float8_e4m3fn"}
for c in F:
    for claim in (Claim(Attend(c),F[c],"bfloat16"),Claim(Attend(c,soft_cap=30.0,weights="bfloat16"),F[c],"bfloat16")):
        n=[];t=time.time()
        for case in CASES:
            if case.operation==claim.operation and case.suits(claim):
                t1=time.time()
                try:
                    x=case.inputs(claim); to_memory(claim,x); e=expected(claim,x)["output"]
                except Exception as er:
                    print(case.name, type(er), er); continue
                lo,hi=(decode_values(v) for v in (e.low,e.high))
                with np.errstate(all="ignore"):
                    w=np.nanmax((hi-lo)/np.maximum(np.abs(lo),1e-3)) if lo.size else 0
                n.append(case.name)
                if c=="vllm.flash_fp8": print(case.name, lo.shape, "open",round(float((hi!=lo).mean()),3) if lo.size else 0, "relw",round(float(w),4), round(time.time()-t1,3), "nan",np.isnan(lo).mean() if lo.size else 0)
        print(claim,len(n),round(time.time()-t,2))
