import numpy as np
from dataclasses import replace
from narrowgauge.suites.meta.wrong_caches import *
from narrowgauge.suites.meta.wrong_caches import _A,_small_weights_lost
from narrowgauge.reference.inputs import case_named, CASES
from narrowgauge.reference.compare import compare
def show(claim,w,label):
    out=[]
    for c in CASES:
        if c.operation=="attend" and c.depth=="smoke" and c.suits(claim):
            x=c.inputs(claim); want=expected(claim,x)
            d=compare(w(claim,x),want)
            out.append((c.name,d.total,want["output"].low.data.size))
    print(label,out)
a=Claim.parse(_A); b=Claim.parse(_A.replace("fp8/", "fp8+soft_cap:30/"))
show(a,ruled(lambda r:r),"same")
show(b,ruled(lambda r:r),"same cap")
for f in (1.01,1.02,1.05): show(b,ruled(lambda r:replace(r,soft_cap=r.soft_cap*f)),f)
show(a,ruled(lambda r:replace(r,weights="bfloat16")),"bf16")
show(a,ruled(lambda r:replace(r,scale=r.scale*(1+2**-9))),"scale")
show(a,edited(_small_weights_lost),"small")
