"""Contracts, kernels and verdicts as JSON: for the pipe to a child process, for ledgers and for vector files."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.kernels import Kernel, Plugged
from narrowgauge.contracts.operations import Cast, Contract, Observe, Quantize
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Blocks, Destination, Recipe

Json = dict[str, Any]


def contract_to_json(contract: Contract) -> Json:
    """{"operation": …} and its one field; a policy or recipe of the owner's own travels whole."""
    if isinstance(contract, Observe):
        return {"operation": "observe", "of": contract.of}
    value = contract.policy if isinstance(contract, Cast) else contract.recipe
    field = "policy" if isinstance(contract, Cast) else "recipe"
    return {"operation": contract.operation, field: value if isinstance(value, str) else dataclasses.asdict(value)}


def contract_from_json(data: Json) -> Contract:
    """The inverse. Raises ``BadInput`` on anything else."""
    try:
        if data["operation"] == "observe":
            return Observe(data["of"])
        if data["operation"] == "cast":
            policy = data["policy"]
            return Cast(policy if isinstance(policy, str) else CastPolicy(**policy))
        if data["operation"] == "quantize":
            recipe = data["recipe"]
            return Quantize(recipe if isinstance(recipe, str) else _recipe_from_json(recipe))
    except (KeyError, TypeError) as error:
        raise BadInput(f"not a contract: {data!r} ({type(error).__name__}: {error})") from error
    raise BadInput(f"not a contract: {data!r}; expected operation cast, quantize or observe")


def _recipe_from_json(data: Json) -> Recipe:
    fixed = dict(data)
    fixed["destinations"] = tuple(_destination(d) for d in data["destinations"])
    fixed["blocks"] = Blocks(**data["blocks"])
    fixed["steps"] = tuple((name, _chain(steps)) for name, steps in data["steps"])
    fixed["element"], fixed["inputs"] = _chain(data["element"]), tuple(data["inputs"])
    return Recipe(**fixed)


def _destination(data: Json) -> Destination:
    policy = data["cast"]
    return Destination(**data | {"cast": policy if isinstance(policy, str) else CastPolicy(**policy)})


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
