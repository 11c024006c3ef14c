"""What a kernel claims, as plain data: an operation, and the same operation at definite formats (a claim)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Recipe


@dataclass(frozen=True)
class Cast:
    """Every element of ``x`` becomes a code of the destination format, by one policy (a name, or your own)."""

    policy: str | CastPolicy
    operation: ClassVar[str] = "cast"

    def outputs(self, format_name: str) -> dict[str, str]:
        """Names and formats of what the kernel returns: ``codes``, of x's shape."""
        return {"codes": format_name}


@dataclass(frozen=True)
class Quantize:
    """A matrix ``x`` [rows, columns] becomes codes and scales, by one recipe (a name, or your own)."""

    recipe: str | Recipe
    operation: ClassVar[str] = "quantize"

    def outputs(self, format_name: str) -> dict[str, str]:
        """Names and formats of what the kernel returns, as the recipe computes them.

        Raises ``BadInput`` where the recipe is but a name: ``reference.behaviour.resolved`` looks it up.
        """
        if isinstance(self.recipe, str):
            raise BadInput(f"what {self.recipe!r} returns is said by the recipe; resolve the claim first")
        return self.recipe.outputs(format_name)


@dataclass(frozen=True)
class Observe:
    """Claims nothing: asks which named policy or recipe the kernel follows."""

    of: str
    operation: ClassVar[str] = "observe"

    def __post_init__(self) -> None:
        if self.of not in OPERATIONS:
            raise unknown("operation", self.of, OPERATIONS, "observe(...)")

    def outputs(self, format_name: str) -> dict[str, str]:
        """Those of the observed operation; of a quantizer, the two that every one has. A dict may hold others."""
        return {"codes": format_name} | ({"scale": "float32"} if self.of == Quantize.operation else {})


Contract = Cast | Quantize | Observe
#: operations that a kernel can claim or be observed for, and the pytest marker of each
OPERATIONS = {Cast.operation: "cast", Quantize.operation: "quantizer"}


def observe(operation: type[Cast] | type[Quantize] | str) -> Observe:
    """``@kernel(observe(Cast), …)``: judge nothing, report what the kernel is."""
    return Observe(operation if isinstance(operation, str) else operation.operation)


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
        """Name of the policy or recipe; "own" for one that came as data, "?" for an observation."""
        if isinstance(self.contract, Observe):
            return "?"
        value = self.contract.policy if isinstance(self.contract, Cast) else self.contract.recipe
        if isinstance(value, Recipe):
            return value.name
        return value if isinstance(value, str) else "own"

    @property
    def outputs(self) -> dict[str, str]:
        return self.contract.outputs(self.format)

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
        claimed: Contract = Cast(rule) if operation == Cast.operation else Quantize(rule)
        contract = Observe(operation) if rule == "?" else claimed
        return cls(contract, format_named(source).name, format_named(destination).name)
