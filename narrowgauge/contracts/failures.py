"""The words in brackets that stand first in a message where no fault is the finding, each with what it says.

With the families of faults (reference/faults/families.py) they are the categories of a report.
"""

from __future__ import annotations

#: of a kernel: its answer was judged wrong in a way that is no fault of the registry
OF_KERNELS: dict[str, str] = {
    "UNEXPLAINED": "wrong codes, and no known fault accounts for them",
    "POLICY": "a cast that is exactly the contract but for a choice of its policy",
    "FORM": "wrong form: a missing, misshaped, unwritten or varying output",
    "NOT-A-CODE": "numbers that are no codes of the format",
    "CRASHED": "the kernel's process crashed",
    "HUNG": "the kernel's process hung, and was killed",
    "RAISED": "the kernel raised an exception",
    "FAILED": "an accumulator that is not the one that the contract claims",
}
#: of what is judged beside kernels
OF_FILES: dict[str, str] = {
    "UNIT": "a model of a matrix unit that parts from what was recorded",
    "AUDIT": "a checkpoint in which something is wrong",
    "NOT-READ": "a file that cannot be read",
}
#: of the night itself: nothing is said of the kernel
OF_THE_NIGHT: dict[str, str] = {
    "STALE-WAIVER": "a waiver whose test passes",
    "LOST": "began and never ended: the process that ran it was lost",
    "NOT-BEGUN": "planned and never begun",
    "NO-RESULT": "ended, and its result file is missing, cut, or says better than the journal",
    "INFRA": "the machine was unfit, and nothing was judged",
    "NO-PLAN": "what it had to run is not known: there is no plan",
}
FAILURES: dict[str, str] = {**OF_KERNELS, **OF_FILES, **OF_THE_NIGHT}
