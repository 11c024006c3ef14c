"""The options of the plugin, and what follows from them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from narrowgauge.contracts.outcome import How
from narrowgauge.golden.manifest import VECTORS
from narrowgauge.plugin.places import OUT
from narrowgauge.reference.inputs import DEPTHS
from narrowgauge.suites.run import Run


def add(parser: pytest.Parser) -> None:
    """Register options."""
    group = parser.getgroup("narrowgauge", "narrowgauge: conformance of low-precision kernels")
    group.addoption(
        "--kernels", action="append", default=[], metavar="FILE", dest="narrowgauge_kernels",
        help="Python file (or dotted module) with @narrowgauge.kernel functions; may be given several times",
    )  # fmt: skip
    group.addoption(
        "--device", action="append", default=[], metavar="ID", dest="narrowgauge_devices",
        help="run only on this device ('narrowgauge devices' lists them); may be given several times",
    )  # fmt: skip
    group.addoption(
        "--waivers", action="append", default=[], metavar="FILE", type=Path, dest="narrowgauge_waivers",
        help="TOML file of known failures, besides the suite's own; may be given several times",
    )  # fmt: skip
    group.addoption(
        "--golden", default=VECTORS, metavar="DIR", type=Path, dest="narrowgauge_golden",
        help="folder of golden vectors (default: those that come with the suite)",
    )  # fmt: skip
    group.addoption(
        "--checkpoint", action="append", default=[], metavar="DIR", type=Path, dest="narrowgauge_checkpoints",
        help="audit a model's folder too; with -m fnuz as bound for MI300; may be given several times",
    )  # fmt: skip
    group.addoption(
        "--recordings", metavar="DIR", type=Path, dest="narrowgauge_recordings",
        help="folder of recorded answers of GPUs, to hold the models of their matrix units to (docs/units.md)",
    )  # fmt: skip
    group.addoption(
        "--depth", choices=DEPTHS, default="smoke", dest="narrowgauge_depth",
        help="how much of the input space to walk (default: smoke)",
    )  # fmt: skip
    group.addoption(
        "--kernel-timeout", type=float, default=60.0, metavar="SECONDS", dest="narrowgauge_timeout",
        help="how long one call of a kernel may take before its process is killed (default: 60)",
    )  # fmt: skip
    group.addoption(
        "--require-verified", action="store_true", dest="narrowgauge_require_verified",
        help="with -m fnuz: exit with 6 if a path was not executed on, or for, an FNUZ target",
    )  # fmt: skip
    group.addoption(
        "--out", default=OUT, metavar="DIR", type=Path, dest="narrowgauge_out",
        help=f"where the ledger goes (default: {OUT})",
    )  # fmt: skip


#: how many inputs hypothesis draws for a property: by profile, and by how a kernel is run. A launch takes a millisecond
#: on a GPU and a hundred in an emulator, and a night is as long as its slowest tests
EXAMPLES: dict[str, dict[How, int]] = {
    "same": {"executed": 25, "interpreted": 25, "emulated": 25},
    "nightly": {"executed": 200, "interpreted": 50, "emulated": 50},
}


def profile() -> str:
    """How hypothesis searches, by HYPOTHESIS_PROFILE: "same" (the default) or "nightly"."""
    name = os.environ.get("HYPOTHESIS_PROFILE", "same")
    if name not in EXAMPLES:
        raise pytest.UsageError(f"HYPOTHESIS_PROFILE={name}: expected one of {', '.join(EXAMPLES)}")
    return name


def load_hypothesis_profile() -> None:
    """A kernel gets the same verdict from every run, unless somebody asks for new examples: a nightly run would else
    look at the same ones for ever. Deadlines are off: a first call compiles.
    """
    from hypothesis import settings

    for name, examples in EXAMPLES.items():
        same = name == "same"
        settings.register_profile(
            name, max_examples=examples["executed"], deadline=None, derandomize=same, print_blob=True
        )
    settings.load_profile(profile())


def kernels_text(config: pytest.Config) -> str:
    """For the header: what was plugged in."""
    plugged: list[str] = config.option.narrowgauge_kernels
    return f"{', '.join(plugged)} and the suite's own" if plugged else "the suite's own"


def has_choices(config: pytest.Config) -> bool:
    """Whether anything was asked for that may not exist."""
    option = config.option
    asked = option.narrowgauge_kernels or option.narrowgauge_devices or option.narrowgauge_waivers
    return bool(asked) or option.narrowgauge_golden != VECTORS


def has_workers(config: pytest.Config) -> bool:
    """Whether xdist's workers do the work, and this process only collects what they report."""
    return getattr(config.option, "dist", "no") != "no"


def run_of(config: pytest.Config) -> Run:
    """The run that the options describe."""
    option = config.option
    return Run(
        origins=option.narrowgauge_kernels,
        device_names=option.narrowgauge_devices,
        waiver_files=option.narrowgauge_waivers,
        golden=option.narrowgauge_golden,
        depth=option.narrowgauge_depth,
        timeout=option.narrowgauge_timeout,
    )


def asks_for_fnuz(config: pytest.Config) -> bool:
    """Whether -m selects the FNUZ paths, and with that asks the porting question."""
    words = config.option.markexpr.replace("(", " ").replace(")", " ").split()
    return any(word == "fnuz" and (place == 0 or words[place - 1] != "not") for place, word in enumerate(words))
