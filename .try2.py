import time, sys, numpy as np
from narrowgauge.contracts.operations import *
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.inputs import CASES
from narrowgauge.reference.expected import expected
from narrowgauge.reference.memory import to_memory
from narrowgauge.reference.kv.caches import CACHES
from narrowgauge.reference import recipes
from narrowgauge.suites.kv.responses import response_of, responds
def formats(cache):
    out=[]
    for p in cache.parts:
        if p.recipe: return [d.format for d in recipes.RECIPES[p.recipe].destinations]
    return ["bfloat16","float16"]
for name,c in CACHES.items():
  for f in formats(c):
    claims=[Claim(KvWrite(name),f if f in("bfloat16","float16") else "bfloat16",f),Claim(KvRead(name),f,"bfloat16")]
    if len(c.parts)==2 and "int4" not in name: claims.append(Claim(Attend(name),f,"bfloat16"))
    for claim in claims:
        n=[];t=time.time();bad=[]
        for case in CASES:
            if case.operation!=claim.operation: continue
            try:
                if not case.suits(claim): continue
                if case.name in('tall',): continue
                x=case.inputs(claim); to_memory(claim,x); expected(claim,x)
                n.append(case.name)
            except Exception as e:
                bad.append((case.name, type(e).__name__, str(e)[:150]))
        print(claim,len(n),round(time.time()-t,2), responds(claim), bad[:2], len(bad) or "")
