"""What the gate can find, as data: how bad it is, whether the machine or a kernel is at fault, and what to do.

docs/nightly.md has the table, written from here by ``python -m narrowgauge.suites.meta.gate_pages``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["red", "yellow"]


@dataclass(frozen=True)
class Kind:
    """A kind of finding."""

    name: str
    level: Level
    infrastructure: bool  #: the machine, the files or the set-up are at fault; otherwise what was judged
    title: str
    remedy: str
    quarantine: bool = False  #: ci/quarantine.toml may make it yellow for a while: machines come and go
    spoils: bool = False  #: results that it is said of are not taken into the history


def _infra(name: str, title: str, remedy: str, *, quarantine: bool = False, spoils: bool = True) -> Kind:
    return Kind(name, "red", True, title, remedy, quarantine, spoils)


def _judged(name: str, title: str, remedy: str) -> Kind:
    return Kind(name, "red", False, title, remedy)


def _remark(name: str, title: str, remedy: str, *, infrastructure: bool = True) -> Kind:
    return Kind(name, "yellow", infrastructure, title, remedy)


_ALL = (
    # --- a kernel, a waiver or the coverage: exit code 1 ---
    _judged("new_failure", "a test fails since this night", "The owner looks at the message: it names the mistake."),
    _judged("still_failing", "a test still fails", "Mend it, or waive it with a link and a date (ci/waivers.toml)."),
    _judged(
        "crashed",
        "a test crashed: it began and reached no verdict, or failed beside its verdict",
        "Its message, or pytest.log of the shard, has the end of it. It counts as the kernel's until shown otherwise.",
    ),
    _judged(
        "no_verdict",
        "a test ended well and left no verdict, or one that says otherwise",
        "A test of the plan must judge. This is a mistake of the suite: report it.",
    ),
    _judged("unrun", "a planned test never began", "Look into pytest.log for why the run ended before it."),
    _judged(
        "not_executed_now",
        "a test that was executed is not any more",
        "The row says what is missing. Bring it back; if it is meant to be so, run the gate once with --accept.",
    ),
    _judged(
        "gone",
        "a test is gone from the plan of the same commit",
        "A package is missing on the machine (ledger.json, missing), or the options changed. If meant: --accept.",
    ),
    _judged("stale_waiver", "a waiver is stale: its test passes, or it names none", "Delete the waiver."),
    _judged("expired_waiver", "a waiver is past its date", "Mend the kernel, or look again and give it a new date."),
    _judged(
        "unknown_waiver",
        "a test is waived by a waiver that the gate does not know",
        "Give the gate the same --waivers files as the run.",
    ),
    # --- machines, files, the set-up: exit code 3 ---
    _infra(
        "missing_lane", "a lane left nothing", "Look whether its job began, and whether it found a machine.",
        quarantine=True,
    ),
    _infra(
        "missing_shard", "a shard left nothing", "Look whether its job began, and whether its results were uploaded.",
        quarantine=True,
    ),
    _infra(
        "preflight", "the machine is unfit: nothing was judged", "Mend the machine or the image; the check says what.",
        quarantine=True,
    ),
    _infra(
        "lost", "the run began and did not end: the machine was lost",
        "Look at the CI engine's log. What was running is named: if it is the same each night, it is the kernel.",
        quarantine=True,
    ),
    _infra(
        "stopped", "the run was stopped: it hung, or was ended from outside",
        "What was running is named: if it is the same each night, it is the kernel.",
        quarantine=True,
    ),
    _infra("damaged", "a result file is missing, cut or changed", "Upload the whole directory, and once."),
    _infra(
        "duplicate_shard", "two directories are the same shard",
        "A second try must replace the first: give the gate one directory for each shard.",
    ),
    _infra("zero_tests", "a shard has run no test", "Look at the options of the run: its selection is empty."),
    _infra("exit_code", "pytest's exit code and the results do not agree", "Look at the end of pytest.log."),
    _infra(
        "mixed", "shards of one place differ in what they ran",
        "One night is one commit, one plan, one set of golden vectors, one torch and one Triton: pin the image.",
    ),
    _infra("duplicate_id", "a test ran twice", "Plans of shards overlap, or something reruns tests: nothing may."),
    _infra("foreign_id", "a result is not of this shard's plan", "Results of two runs are in one directory."),
    _infra(
        "skipped_path", "of a whole operation nothing was executed",
        "Rows say what is missing. What a lane cannot have does not belong into its paths (ci/lanes.toml).",
        spoils=False,
    ),
    _infra("unknown_lane", "a run is of a lane that is not declared", "Declare it in ci/lanes.toml."),
    _infra(
        "clock_back", "a clock went back",
        "Set the machine's clock. Old results must not be given again as new ones. The night is not recorded.",
    ),
    _infra(
        "clock_apart", "the run and the gate are days apart",
        "Set the clock that is wrong; for results of an old night say --today. The night is not recorded.",
    ),
    _infra(
        "expired_quarantine", "a quarantine is past its date",
        "Mend the machine, or look again and give it a new date.",
        spoils=False,
    ),
    # --- remarks: the night may be green ---
    _remark("disputed", "a test is disputed", "The row says which answers are open.", infrastructure=False),
    _remark(
        "plan_changed", "tests are gone from the plan, of another commit or depth", "See that they are meant to be.",
        infrastructure=False,
    ),
    _remark("accepted", "taken as it is by --accept", "Say --accept once, never in a template.", infrastructure=False),
    _remark("unused_quarantine", "a quarantine covers nothing", "Delete it when the machine is mended."),
    _remark("nothing_expected", "a lane that is lost could not be noticed", "Name the lanes with --expect."),
    _remark("unexpected_place", "results of a place that was not expected", "Name it with --expect."),
    _remark("place_dropped", "a place of the last night is no longer expected", "See that it is meant to be."),
    _remark("no_history", "there was no history: every failure is new", "See that the history is kept between nights."),
    _remark("narrowed", "a run was narrowed by options", "A night has its lane's options alone."),
    _remark("retried", "a job is not at its first attempt", "Look at why the first one failed."),
    _remark("lanes_differ", "lanes ran different commits or golden vectors", "Start them from one commit."),
    _remark(
        "clock_moved", "a clock was set during the run",
        "Times of that shard are wrong by that much; durations are not, they are from a clock that is never set.",
    ),
)  # fmt: skip

KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}


@dataclass(frozen=True)
class Finding:
    """One thing that was found, and where."""

    kind: str
    said: str
    place: str = ""  #: lane and target; "" for the night as a whole
    shard: str = ""  #: "2/3"
    id: str = ""
    kernel: str = ""
    owner: str = ""
    quarantined: str = ""  #: the link of the entry that covers it

    def __post_init__(self) -> None:
        assert self.kind in KINDS, f"{self.kind} is no kind of finding"

    @property
    def level(self) -> Level:
        return "yellow" if self.quarantined else KINDS[self.kind].level

    @property
    def red(self) -> bool:
        return self.level == "red"

    @property
    def where(self) -> str:
        return f"{self.place} {self.shard}".strip()

    def to_json(self) -> dict[str, Any]:
        kind = KINDS[self.kind]
        return {**asdict(self), "level": self.level, "infrastructure": kind.infrastructure, "title": kind.title}
