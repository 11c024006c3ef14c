"""What a kernel claims, as plain data: an operation, and the same operation at definite formats (a claim)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from narrowgauge.contracts.cache import Cache
from narrowgauge.contracts.conversion import Conversion
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.product import Product
from narrowgauge.contracts.recipe import INPUTS, Recipe
from narrowgauge.contracts.wide import Wide

#: name of an output or input -> name of the layout in which it stands in memory
Layouts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Cast:
    """Every element of ``x`` becomes a code of the destination format, by one policy (a name, or your own)."""

    policy: str | CastPolicy
    operation: ClassVar[str] = "cast"

    @property
    def rule(self) -> str:
        return self.policy if isinstance(self.policy, str) else "own"


@dataclass(frozen=True)
class _OfRecipe:
    """A contract on a recipe (a name, or your own), and how its buffers are packed (``{"codes": "awq_4bit"}``)."""

    recipe: str | Recipe
    layouts: Layouts | Mapping[str, str] = ()  #: kept as pairs, in order

    def __post_init__(self) -> None:
        object.__setattr__(self, "layouts", tuple(sorted(dict(self.layouts).items())))

    @property
    def rule(self) -> str:
        """The recipe's name, and the layouts behind an ``@``."""
        name = self.recipe if isinstance(self.recipe, str) else self.recipe.name
        packed = ",".join(f"{part}:{layout}" for part, layout in dict(self.layouts).items())
        return f"{name}@{packed}" if packed else name

    @property
    def known(self) -> Recipe:
        """The recipe as data. Raises ``BadInput`` where it is but a name."""
        if isinstance(self.recipe, str):
            raise BadInput(f"what {self.recipe!r} takes and returns is said by the recipe; resolve the claim first")
        return self.recipe


@dataclass(frozen=True)
class Quantize(_OfRecipe):
    """A matrix ``x`` [rows, columns] becomes codes and scales, by one recipe."""

    operation: ClassVar[str] = "quantize"


@dataclass(frozen=True)
class Dequantize(_OfRecipe):
    """Codes ``x`` [rows, columns] become the values that they stand for, by what a recipe stored beside them."""

    operation: ClassVar[str] = "dequantize"


@dataclass(frozen=True)
class Then(_OfRecipe):
    """An operation on a matrix, and its result quantized by one recipe, in one kernel.

    ``first`` names the operation ("rms_norm"); a result that is not exact by its definition is an interval, and so
    are codes that it does not decide.
    """

    first: str = ""
    operation: ClassVar[str] = "then"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.first:
            raise BadInput('Then(...): which operation comes first is missing, as in Then(RECIPE, first="rms_norm")')

    @property
    def rule(self) -> str:
        return f"{self.first}+{super().rule}"


@dataclass(frozen=True)
class _OfCache:
    """A contract on a key-value cache (a name, or your own)."""

    cache: str | Cache

    @property
    def rule(self) -> str:
        """The cache's name."""
        return self.cache if isinstance(self.cache, str) else self.cache.name


@dataclass(frozen=True)
class KvWrite(_OfCache):
    """Parts of tokens, x [tokens, heads, head size] the first of them, are written into the pages of a cache.

    A claim's source is the format of x, its format that of the codes in the cache. The kernel is given the caches as
    they were (``k_cache``), and changes them in place.
    """

    operation: ClassVar[str] = "kv_write"


@dataclass(frozen=True)
class KvRead(_OfCache):
    """The tokens of sequences are gathered from a cache, by block tables, as values.

    A claim's source is the format of the codes, its format that of the values. x is the first buffer of the cache.
    """

    operation: ClassVar[str] = "kv_read"


@dataclass(frozen=True)
class Attend(_OfCache):
    """One new token of each sequence attends to what a cache holds of it: softmax in float32, any order of sums.

    A claim's source is the format of the codes, its format that of query and output. x is the first buffer.
    """

    soft_cap: float = 0.0  #: c of c · tanh(score / c); 0 for none
    scale: float = 0.0  #: what scores are multiplied by, a float32; 0 for 1 / √(columns of a key)
    weights: str = "float32"  #: the format to which softmax's numbers are rounded before they meet V
    operation: ClassVar[str] = "attend"

    @property
    def rule(self) -> str:
        """The cache's name, and behind a ``+`` each what is not usual."""
        unusual = [f"+{name}:{getattr(self, name):.9g}" for name in ("soft_cap", "scale") if getattr(self, name)]
        return super().rule + "".join(unusual) + (f"+weights:{self.weights}" if self.weights != "float32" else "")


@dataclass(frozen=True)
class Convert:
    """What a checkpoint stores becomes what another place expects, by one conversion (a name, or your own).

    A claim's source is the format of the codes taken, x [rows, columns], its format that of the codes given.
    """

    conversion: str | Conversion
    operation: ClassVar[str] = "convert"

    @property
    def rule(self) -> str:
        """The conversion's name."""
        return self.conversion if isinstance(self.conversion, str) else self.conversion.name

    @property
    def known(self) -> Conversion:
        """The conversion as data. Raises ``BadInput`` where it is but a name."""
        if isinstance(self.conversion, str):
            raise BadInput(f"what {self.conversion!r} takes and returns is said by the conversion; resolve the claim")
        return self.conversion


@dataclass(frozen=True)
class Matmul:
    """Two matrices of codes are multiplied, y [M, N], by one product (a name, or your own).

    A claim's source is the format of a's codes, x [M, K], its format that of y. ``accumulator`` names what sums are
    kept in, and so how far they may be off; "" stands for the least exact unit that takes these formats on the target.
    """

    product: str | Product
    accumulator: str = ""
    portrait: tuple[tuple[str, str], ...] | Mapping[str, str] = ()  #: what probes must find; kept as pairs, in order
    operation: ClassVar[str] = "matmul"

    def __post_init__(self) -> None:
        object.__setattr__(self, "portrait", tuple(sorted(dict(self.portrait).items())))

    @property
    def rule(self) -> str:
        """The product's name, and the accumulator behind a ``+``."""
        name = self.product if isinstance(self.product, str) else self.product.name
        return f"{name}+{self.accumulator}" if self.accumulator else name


@dataclass(frozen=True)
class WideOp:
    """An operation that is computed in float32, x [rows, columns], by one entry of the catalogue (a name, or your own).

    What it takes and returns beside x has names of its own: ``weight``, ``residual``, ``y``. A claim's source is the
    format of x, its format that of what comes out, where an output has none of its own.
    """

    wide: str | Wide
    operation: ClassVar[str] = "wide"

    @property
    def rule(self) -> str:
        """The operation's name."""
        return self.wide if isinstance(self.wide, str) else self.wide.name

    @property
    def known(self) -> Wide:
        """The operation as data. Raises ``BadInput`` where it is but a name."""
        if isinstance(self.wide, str):
            raise BadInput(f"what {self.wide!r} takes and returns is said by the operation; resolve the claim first")
        return self.wide


@dataclass(frozen=True)
class Observe:
    """Claims nothing: asks which named policy or recipe the kernel follows."""

    of: str
    inputs: tuple[str, ...] = ()  #: what the kernel is given beside x: rules that take just these are looked at
    rule: ClassVar[str] = "?"

    def __post_init__(self) -> None:
        if self.of not in OBSERVED:
            raise unknown("operation", self.of, OBSERVED, "observe(...)")
        for name in self.inputs:
            if name not in INPUTS:
                raise unknown("input", name, INPUTS, "observe(...)")


OfCache = KvWrite | KvRead | Attend
Contract = Cast | Quantize | Dequantize | Then | Convert | Matmul | WideOp | Observe | OfCache
#: operations that a kernel can claim, and the pytest marker of each
OPERATIONS = {kind.operation: marker for kind, marker in (
    (Cast, "cast"), (Quantize, "quantizer"), (Dequantize, "quantizer"), (Then, "quantizer"),
    (KvWrite, "kv_cache"), (KvRead, "kv_cache"), (Attend, "kv_cache"), (Convert, "checkpoint"),
    (Matmul, "matmul"), (WideOp, "wide_op"),
)}  # fmt: skip
#: those that a kernel can be observed for
OBSERVED = (Cast.operation, Quantize.operation)


def observe(operation: type[Cast] | type[Quantize] | str, inputs: tuple[str, ...] = ()) -> Observe:
    """``@kernel(observe(Cast), …)``: judge nothing, report what the kernel is."""
    return Observe(operation if isinstance(operation, str) else operation.operation, tuple(inputs))


@dataclass(frozen=True)
class Claim:
    """A contract at definite formats: ``contract`` on inputs of ``source`` giving codes of ``format``."""

    contract: Contract
    source: str
    format: str

    def __post_init__(self) -> None:
        for name in (self.source, self.format):
            if format_named(name).name != name:
                raise BadInput(f"format {name!r} in a claim; expected its own name, {format_named(name).name!r}")

    @property
    def operation(self) -> str:
        """The operation that is computed (what an observation observes)."""
        return self.contract.of if isinstance(self.contract, Observe) else self.contract.operation

    @property
    def rule(self) -> str:
        """Name of the policy or recipe; "own" for a policy that came as data, "?" for an observation."""
        return self.contract.rule

    @property
    def layouts(self) -> dict[str, str]:
        """Which layout each packed output or input has."""
        return dict(self.contract.layouts) if isinstance(self.contract, _OfRecipe) else {}

    @property
    def inputs(self) -> dict[str, str]:
        """Names and formats of what the kernel is given beside ``x``.

        Raises ``BadInput`` where a recipe is but a name: ``reference.behaviour.resolved`` looks it up.
        """
        contract = self.contract
        if isinstance(contract, Cast):
            return {}
        if isinstance(contract, OfCache):
            raise BadInput(f"{self}: what it takes follows from its cache; reference/kv/memory.py says it")
        if isinstance(contract, Matmul):
            raise BadInput(f"{self}: what it takes follows from its product; reference/matmul/call.py says it")
        if isinstance(contract, Observe):
            return {name: INPUTS[name] for name in contract.inputs}
        if isinstance(contract, Convert):
            return contract.known.inputs(self.source)
        if isinstance(contract, WideOp):
            return contract.known.given(self.source)
        if isinstance(contract, Dequantize):
            return contract.known.given_to_reader(self.source)
        return {name: INPUTS[name] for name in contract.known.inputs}

    @property
    def outputs(self) -> dict[str, str]:
        """Names and formats of what the kernel returns: of a cast or a reader ``codes``, of x's shape; of a quantizer
        what its recipe computes; of a conversion what it gives; of one that is only observed the two that each has (a
        dict may hold others).

        Raises ``BadInput`` as ``inputs`` does.
        """
        contract = self.contract
        if isinstance(contract, OfCache):
            raise BadInput(f"{self}: what it returns follows from its cache; reference/kv/memory.py says it")
        if isinstance(contract, Quantize | Then | Convert):
            return contract.known.outputs(self.format)
        if isinstance(contract, WideOp):
            return contract.known.gives(self.format)
        observed = isinstance(contract, Observe) and contract.of == Quantize.operation
        return {"codes": self.format} | ({"scale": "float32"} if observed else {})

    def __str__(self) -> str:
        return f"{self.operation}/{self.rule}/{self.source}/{self.format}"

    @classmethod
    def parse(cls, text: str) -> Claim:
        """``operation/rule/source/format``, as ``str`` writes it, with any alias for the formats."""
        parts = text.split("/")
        if len(parts) != 4 or not all(parts):
            raise BadInput(
                f"claim {text!r}; expected operation/rule/source/format, "
                "for example cast/ocp_saturate/bfloat16/float8_e4m3fn"
            )
        operation, rule, source, destination = parts
        if operation not in OPERATIONS:
            raise unknown("operation", operation, OPERATIONS, f"claim {text!r}")
        contract = Observe(operation) if rule == "?" else _contract(operation, rule, text)
        return cls(contract, format_named(source).name, format_named(destination).name)


def _contract(operation: str, rule: str, text: str) -> Contract:
    if operation == Cast.operation:
        return Cast(rule)
    if operation in (KvWrite.operation, KvRead.operation):
        return (KvWrite if operation == KvWrite.operation else KvRead)(rule)
    if operation == Attend.operation:
        return _attend(rule, text)
    if operation == Convert.operation:
        return Convert(rule)
    if operation == WideOp.operation:
        return WideOp(rule)
    if operation == Matmul.operation:
        product, _, accumulator = rule.partition("+")
        return Matmul(product, accumulator)
    first, _, rest = rule.rpartition("+")
    recipe, _, packed = rest.partition("@")
    pairs = [tuple(part.partition(":")[::2]) for part in packed.split(",")] if packed else []
    if any(not name or not layout for name, layout in pairs):
        raise BadInput(f"claim {text!r}: layouts {packed!r}; expected name:layout, with commas between")
    layouts = tuple((name, layout) for name, layout in pairs)
    if operation == Then.operation:
        return Then(recipe, layouts, first)
    if first:
        raise BadInput(f"claim {text!r}: {first}+ stands before the recipe of a '{Then.operation}' alone")
    return Quantize(recipe, layouts) if operation == Quantize.operation else Dequantize(recipe, layouts)


def _attend(rule: str, text: str) -> Attend:
    cache, *unusual = rule.split("+")
    said = {name: value for name, _, value in (each.partition(":") for each in unusual)}
    weights = format_named(said.pop("weights", "float32")).name
    try:
        cap, scale = (float(said.pop(name, "0")) for name in ("soft_cap", "scale"))
    except ValueError:
        said["soft_cap"] = "no number"
    if said:
        raise BadInput(f"claim {text!r}: {rule!r}; expected CACHE+soft_cap:NUMBER+scale:NUMBER+weights:FORMAT")
    return Attend(cache, cap, scale, weights)
