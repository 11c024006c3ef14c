"""What the casts of released versions of libraries gave (versions.json): how it is recorded, and what policies say.

To add a version of torch, in an environment that has it (neither narrowgauge nor NVIDIA's libraries are needed there):

    python -m narrowgauge.suites.meta.versions inputs float32.bin                  # here
    python suites/meta/measure_torch.py float32.bin codes                          # there
    python -m narrowgauge.suites.meta.versions torch WHEEL HOW codes               # here

``codes`` may be several folders, as measured under several CPU capabilities. Of ml_dtypes and gfloat the version that
is installed here is recorded: ``python -m narrowgauge.suites.meta.versions ml_dtypes WHEEL HOW``.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain, product
from pathlib import Path

import numpy as np
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.kernels_under_test.by_version import ml_dtypes_policy, torch_policy
from narrowgauge.reference.codec import values
from narrowgauge.reference.deviations import Deviation
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.policies import policy_named
from narrowgauge.suites.meta import proof
from narrowgauge.suites.meta.measure_torch import FORMATS as FORMATS_OF_TORCH
from narrowgauge.suites.meta.measure_torch import PROBES, WIDE

DATA = Path(__file__).with_name("versions.json")
KERNELS = {
    library: tuple(k for k, of in proof.LIBRARIES.items() if of == library)
    for library in dict.fromkeys(proof.LIBRARIES.values())
}
#: a cast: kernel, source, destination
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Wheel:
    """A released version that was run."""

    library: str
    version: str
    wheel: str  #: its file's name
    measured: str  #: the day
    how: str  #: on what, and with what stand-ins


@dataclass(frozen=True)
class Answer:
    """What a cast gave for every input of its set, and the versions that gave it."""

    kernel: str
    source: str
    format: str
    digest: str  #: sha256 of the codes, every NaN as one
    codes: Mapping[str, str]  #: of the inputs that one wants to see, from float32
    versions: tuple[str, ...]

    @property
    def key(self) -> Key:
        return self.kernel, self.source, self.format


@dataclass(frozen=True)
class Measured:
    """The whole of versions.json."""

    wheels: tuple[Wheel, ...]
    answers: tuple[Answer, ...]

    def versions_of(self, library: str) -> list[str]:
        """In order of release."""
        return sorted((w.version for w in self.wheels if w.library == library), key=Version)

    def of(self, library: str, version: str) -> dict[Key, Answer]:
        """What one version gave."""
        return {a.key: a for a in self.answers if a.kernel in KERNELS[library] and version in a.versions}


def load() -> Measured:
    """What was recorded."""
    held = json.loads(DATA.read_text(encoding="utf-8"))
    answers = (Answer(**{**a, "versions": tuple(a["versions"])}) for a in held["answers"])
    return Measured(tuple(Wheel(**w) for w in held["wheels"]), tuple(answers))


# --- measuring -------------------------------------------------------------------------------------------------------


@cache
def inputs(source: str) -> Coded:
    """The set that every cast is asked: a whole 16-bit source; or of float32 every value and tie of every destination
    of up to 16 bits with its neighbours, every class of NaN, and 4,096 mantissas for each exponent and sign."""
    if source != "float32":
        return case_named("every_code").make(Claim(Cast("ieee"), source, "float8_e4m3"))
    destinations = [f.name for f in FORMATS.values() if f.bits <= 16 and f.family != "integer"]
    parts = [case_named("edges").make(Claim(Cast("ieee"), source, name)).data for name in destinations]
    parts.append(case_named("stratified_2m").make(Claim(Cast("ieee"), source, "float8_e4m3")).data)
    return Coded(source, np.unique(np.concatenate(parts)))


def of_folder(folder: Path) -> Iterator[tuple[Key, str, proof.Codes]]:
    """The codes that measure_torch.py left: cast, layout of the input tensor, codes. Raises ``BadInput`` for a file of
    another length than the set's."""
    for source, name, layout in product(("float32", *WIDE), (*FORMATS_OF_TORCH, *WIDE), ("contiguous", "strided")):
        path = folder / f"{source}-{name}-{layout}"
        if path.is_file():
            codes, count = np.frombuffer(path.read_bytes(), FORMATS[name].storage), inputs(source).data.size
            if codes.size != count:
                raise BadInput(f"{path} has {codes.size:,} codes, not {count:,}: measure with the inputs of today")
            yield ("torch_eager", source, name), layout, codes


def of_installed(library: str) -> Iterator[tuple[Key, str, proof.Codes]]:
    """The same of a library that runs in this process."""
    for kernel in KERNELS[library]:
        for claim in proof.record_of(kernel).claims:
            codes = proof.ask_here(claim, inputs(claim.source), kernel)
            yield (kernel, claim.source, claim.format), "contiguous", codes


def digest(codes: proof.Codes, format_name: str) -> str:
    """sha256 of codes, every NaN as one."""
    one = np.isnan(values(FORMATS[format_name]))
    wide = codes.astype(np.int64)
    inside = (wide >= 0) & (wide < one.size)
    wide[inside & one[np.where(inside, wide, 0)]] = -(1 << 40)
    return hashlib.sha256(wide.astype("<i8").tobytes()).hexdigest()


def new_answer(key: Key, codes: proof.Codes, version: str) -> Answer:
    """What a version gave."""
    kernel, source, name = key
    x = inputs(source)
    shown: dict[str, str] = {}
    if source == "float32":
        at = np.searchsorted(x.data, np.array(list(PROBES.values()), x.data.dtype))
        assert (x.data[at] == list(PROBES.values())).all()
        shown = dict(zip(PROBES, proof.shown(codes[at]), strict=True))
    return Answer(kernel, source, name, digest(codes, name), shown, (version,))


def recorded(data: Measured, wheel: Wheel, asked: Iterator[tuple[Key, str, proof.Codes]]) -> Measured:
    """The data with a version added, or measured anew. Raises ``BadInput`` where layout or CPU change more than NaN."""
    old = tuple(_without(data.answers, wheel))
    found: dict[Key, Answer] = {}
    for key, layout, codes in asked:
        same = found.get(key) or next((a for a in old if a.key == key and a.digest == digest(codes, key[2])), None)
        answer = same or new_answer(key, codes, wheel.version)
        if key in found and digest(codes, key[2]) != answer.digest:
            raise BadInput(
                f"{wheel.library} {wheel.version}, {key}: {layout} gives other codes than what was read first"
            )
        found[key] = replace(answer, versions=tuple(sorted({*answer.versions, wheel.version}, key=Version)))
    kept = [a for a in old if (a.key, a.digest) not in {(f.key, f.digest) for f in found.values()}]
    answers = sorted([*kept, *found.values()], key=lambda a: (*a.key, Version(a.versions[0])))
    wheels = [w for w in data.wheels if (w.library, w.version) != (wheel.library, wheel.version)]
    wheels = sorted([*wheels, wheel], key=lambda w: (w.library, Version(w.version)))
    return Measured(tuple(wheels), tuple(answers))


def _without(answers: tuple[Answer, ...], wheel: Wheel) -> Iterator[Answer]:
    for a in answers:
        mine = a.kernel in KERNELS[wheel.library]
        left = tuple(v for v in a.versions if not (mine and v == wheel.version))
        if left:
            yield replace(a, versions=left)


# --- what the policies say -------------------------------------------------------------------------------------------


def policy_of(kernel: str, version: str, format_name: str) -> str:
    """The named policy that a library's cast is said to follow in a version."""
    if kernel == "torch_eager":
        return "torch_ieee" if format_name in WIDE else torch_policy(version)
    if kernel == "ml_dtypes_astype":
        return ml_dtypes_policy(version)
    return next(claim.rule for claim in proof.record_of(kernel).claims)


def exceptions(kernel: str, version: str, format_name: str) -> list[Deviation]:
    """Where it is listed to part from that policy."""
    return [
        d
        for d in policy_named(policy_of(kernel, version, format_name)).exceptions
        if d.format == format_name and SpecifierSet(d.versions).contains(version)
    ]


@cache
def digest_of_policy(policy: CastPolicy, source: str, format_name: str, known: tuple[Deviation, ...]) -> str:
    """The digest of what a policy says of every input, but for the deviations' inputs, which get what they say."""
    x = inputs(source)
    codes = expected(Claim(Cast(policy), source, format_name), x)["codes"].low.codes.copy()
    for deviation in known:
        codes[deviation.where.holds(decode_values(x))] = deviation.gives
    return digest(codes, format_name)


def span(versions: Sequence[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def news(data: Measured, library: str, version: str, found: Mapping[Key, str]) -> str:
    """Why the digests found with a version are not what was recorded, and what to do; "" where they are."""
    listed = data.versions_of(library)
    each = {v: {key: a.digest for key, a in data.of(library, v).items()} for v in listed}
    if version not in listed:
        same = [v for v in listed if each[v] == found]
        return (
            f"{library} {version} was never measured; what was is {', '.join(listed)}. Its casts are those of "
            f"{span(same) if same else 'no version that was'}. Record it as the head of suites/meta/versions.py says, "
            "and widen the ranges in reference/policies.py, reference/deviations.py and ci/waivers.toml; one that "
            "casts as none did needs a policy of its own, and a line in kernels_under_test/by_version.py."
        )
    wrong = [key for key in sorted(each[version] | dict(found)) if each[version].get(key) != found.get(key)]
    told = ", ".join("/".join(key) for key in wrong)
    return f"{library} {version} does not give what was recorded of it: {told}" if wrong else ""


def main(arguments: list[str]) -> None:
    """``inputs FILE`` writes the float32 set; ``LIBRARY WHEEL HOW [FOLDER …]`` records a version."""
    if arguments[0] == "inputs":
        Path(arguments[1]).write_bytes(inputs("float32").data.astype("<u4").tobytes())
        return
    library, name, how, *folders = arguments
    asked: Iterator[tuple[Key, str, proof.Codes]]
    if folders:
        version = json.loads((Path(folders[0]) / "measured.json").read_text())["version"].split("+")[0]
        asked = chain.from_iterable(of_folder(Path(folder)) for folder in folders)
    else:
        version, asked = importlib.metadata.version(library), of_installed(library)
    data = recorded(load(), Wheel(library, version, name, datetime.date.today().isoformat(), how), asked)
    DATA.write_text(json.dumps(asdict(data), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
