import numpy as np
from narrowgauge.contracts.operations import *
from narrowgauge.reference.expected import expected
from narrowgauge.reference.memory import to_memory
from narrowgauge.reference.compare import compare
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.caches import CACHES
from narrowgauge.reference import recipes
from narrowgauge.suites.kv.responses import response_of, responds
exec(open('.try2.py').read().split("for name,c in")[0].split("import recipes")[1].split("import response_of, responds")[1])
for name,c in CACHES.items():
  for f in formats(c):
    claims=[Claim(KvWrite(name),f if f in("bfloat16","float16") else "bfloat16",f),Claim(KvRead(name),f,"bfloat16"),Claim(KvRead(name),f,"float16")]
    if len(c.parts)==2 and "int4" not in name: claims.append(Claim(Attend(name),f,"bfloat16"))
    for claim in claims:
        if not responds(claim): continue
        try:
            r=response_of(claim)
            to_memory(claim,r.second)
            a=expected(claim,r.first); b=expected(claim,r.second)
            w=r.expected({n:v.low for n,v in a.items()})
            if claim.operation=='attend':
                wh=r.expected({n:v.high for n,v in a.items()})
                A=[decode_values(v) for v in (w["output"].low,wh["output"].low,b["output"].low,b["output"].high)]
                bad=int(((A[0]!=A[2])|(A[1]!=A[3])).sum())
            else:
                bad=compare({n:v.low for n,v in b.items()},w).total
            print(claim,bad)
        except Exception as e: print(claim,type(e).__name__,e)
