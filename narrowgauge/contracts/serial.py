"""Contracts, kernels and verdicts as JSON: for the pipe to a child process, for ledgers and for vector files."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from narrowgauge.contracts.cache import Buffer, Cache, Field, Part
from narrowgauge.contracts.conversion import Conversion, Held
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.kernels import Kernel, Plugged
from narrowgauge.contracts.operations import (
    Attend,
    Cast,
    Contract,
    Convert,
    Dequantize,
    KvRead,
    KvWrite,
    Matmul,
    Observe,
    Quantize,
    Then,
    WideOp,
)
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.product import Operand, Product
from narrowgauge.contracts.recipe import Blocks, Destination, Reader, Recipe
from narrowgauge.contracts.wide import Held as WideHeld
from narrowgauge.contracts.wide import Wide

Json = dict[str, Any]


_OF_RECIPE: dict[str, type[Quantize | Dequantize | Then]] = {c.operation: c for c in (Quantize, Dequantize, Then)}
_OF_CACHE: dict[str, type[KvWrite | KvRead | Attend]] = {c.operation: c for c in (KvWrite, KvRead, Attend)}


def contract_to_json(contract: Contract) -> Json:
    """{"operation": …} and its fields; a policy or recipe of the owner's own travels whole."""
    kind = "observe" if isinstance(contract, Observe) else contract.operation
    return {"operation": kind} | dataclasses.asdict(contract)


def contract_from_json(data: Json) -> Contract:
    """The inverse. Raises ``BadInput`` on anything else."""
    try:
        fields = dict(data)
        operation = fields.pop("operation")
        if "layouts" in fields:
            fields["layouts"] = tuple((str(name), str(layout)) for name, layout in fields["layouts"])
        if operation == "observe":
            return Observe(**fields | {"inputs": tuple(fields.get("inputs", ()))})
        if operation == "cast":
            policy = fields["policy"]
            return Cast(policy if isinstance(policy, str) else CastPolicy(**policy))
        if operation in _OF_RECIPE:
            recipe = fields["recipe"]
            fields["recipe"] = recipe if isinstance(recipe, str) else _recipe_from_json(recipe)
            return _OF_RECIPE[operation](**fields)
        if operation == "convert":
            conversion = fields["conversion"]
            return Convert(conversion if isinstance(conversion, str) else _conversion_from_json(conversion))
        if operation == "matmul":
            product = fields["product"]
            fields["product"] = product if isinstance(product, str) else _product_from_json(product)
            return Matmul(**fields | {"portrait": tuple((str(n), str(v)) for n, v in fields["portrait"])})
        if operation == "wide":
            wide = fields["wide"]
            return WideOp(wide if isinstance(wide, str) else _wide_from_json(wide))
        if operation in _OF_CACHE:
            cache = fields["cache"]
            fields["cache"] = cache if isinstance(cache, str) else _cache_from_json(cache)
            return _OF_CACHE[operation](**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"not a contract: {data!r} ({type(error).__name__}: {error})") from error
    known = ", ".join(["observe", "cast", "convert", "matmul", "wide", *_OF_RECIPE, *_OF_CACHE])
    raise BadInput(f"not a contract: {data!r}; expected operation {known}")


def _cache_from_json(data: Json) -> Cache:
    buffers = tuple(
        Buffer(**b | {"fields": tuple(Field(**f | {"storage": tuple(f["storage"])}) for f in b["fields"])})
        for b in data["buffers"]
    )
    parts = tuple(Part(**part) for part in data["parts"])
    return Cache(**data | {"parts": parts, "buffers": buffers, "blocks": tuple(data["blocks"])})


def _conversion_from_json(data: Json) -> Conversion:
    fixed = dict(data)
    for side in ("takes", "gives"):
        fixed[side] = tuple(Held(**held) for held in data[side])
    for name in ("blocks", "new_blocks"):
        fixed[name] = Blocks(**data[name])
    fixed["formats"] = tuple((one, other) for one, other in data["formats"])
    fixed["steps"] = tuple(tuple(step) for step in data["steps"])
    return Conversion(**fixed)


def _wide_from_json(data: Json) -> Wide:
    fixed = dict(data)
    for side in ("inputs", "outputs"):
        fixed[side] = tuple(WideHeld(**held) for held in data[side])
    return Wide(**fixed | {"steps": tuple(tuple(step) for step in data["steps"])})


def _product_from_json(data: Json) -> Product:
    sides = {
        side: Operand(**data[side] | {"layouts": tuple((str(n), str(v)) for n, v in data[side]["layouts"])})
        for side in ("a", "b")
    }
    return Product(**data | sides | {"formats": tuple((one, other) for one, other in data["formats"])})


def _recipe_from_json(data: Json) -> Recipe:
    fixed = dict(data)
    fixed["destinations"] = tuple(_destination(d) for d in data["destinations"])
    fixed["blocks"] = Blocks(**data["blocks"])
    fixed["steps"] = _named_chains(data["steps"])
    fixed["reader"] = Reader(_named_chains(data["reader"]["blocks"]), _chain(data["reader"]["element"]))
    fixed["element"], fixed["inputs"] = _chain(data["element"]), tuple(data["inputs"])
    return Recipe(**fixed)


def _destination(data: Json) -> Destination:
    policy = data["cast"]
    return Destination(**data | {"cast": policy if isinstance(policy, str) else CastPolicy(**policy)})


def _named_chains(named: list[Any]) -> Any:
    return tuple((name, _chain(steps)) for name, steps in named)


def _chain(steps: list[Any]) -> Any:
    return tuple(step if isinstance(step, str) else tuple(step) for step in steps)


def plugged_to_json(plugged: Plugged) -> Json:
    data = dataclasses.asdict(dataclasses.replace(plugged, kernel=cast(Any, None)))
    record = {f.name: getattr(plugged.kernel, f.name) for f in dataclasses.fields(Kernel)}
    return data | {"kernel": record | {"contract": contract_to_json(plugged.kernel.contract)}}


def plugged_from_json(data: Json) -> Plugged:
    record = dict(data["kernel"])
    record["contract"] = contract_from_json(record["contract"])
    record["formats"], record["sources"] = tuple(record["formats"]), tuple(record["sources"])
    return Plugged(**{**data, "kernel": Kernel(**record)})
