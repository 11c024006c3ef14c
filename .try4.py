import sys
from narrowgauge.suites.meta.test_kv_mutants import *
host, interpreter = discovery.host(), discovery.interpreter()
d={"writer": host, "reader": host, "attention": host, "triton": interpreter}
for n in [*NAMED,"kv_writer_divides_in_place"]:
    if len(sys.argv)>1 and sys.argv[1] not in n: continue
    try:
        print(n, [(j.row.case,j.row.result,j.row.outcome if j.row.outcome!='returned' else '',j.row.elements and round(sum(j.row.differences.values())/j.row.elements,4),j.row.malformed and j.row.malformed[0][:60], j.row.reason[:70]) for j in judged(n,d) if j.row.result!='passed'] or "NOT CAUGHT")
    except Exception as e: print(n, type(e), str(e)[:300])
host.close(); interpreter.close()
