import traceback
from narrowgauge.suites.meta.test_kv_mutants import *
host, interpreter = discovery.host(), discovery.interpreter()
d={"writer": host, "reader": host, "attention": host, "triton": interpreter}
m=[k for k in NAMED if k.startswith("kv_writer_guards")][0]
try: judged(m,d)
except Exception: traceback.print_exc(limit=-7)
host.close(); interpreter.close()
