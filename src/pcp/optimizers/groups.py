"""Parameter groups: by names or by a function, a rate of their own, a decay, an optimizer, or no steps at all."""

import dataclasses
import difflib
import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pcp.ir.tree import flatten
from pcp.ops.elementwise import convert
from pcp.optimizers.base import (
    InvalidOptimizer,
    Optimizer,
    Parameters,
    Schedule,
    State,
    expect_optimizer,
    is_within,
    kept_by,
)
from pcp.tensor import Tensor, as_tensor

FROZEN = "frozen"
OTHERS = "others"
"""The entry of the state of all parameters that no group names."""

Chooses = str | Callable[[str, tuple[int, ...]], bool]
"""A pattern of dotted names, with `*`, `?` and `[...]`; or a function of a name and a shape."""

Settings = Mapping[str, float] | Optimizer | str
"""`rate`, a factor, and `decay`, a weight decay; or an optimizer; or `"frozen"`."""


class NoSuchParameter(InvalidOptimizer):
    """A group that has no parameter."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """A learning rate times a factor."""

    rate: float | Schedule
    factor: float

    def __call__(self, step: Tensor) -> Tensor:
        rate = self.rate(step) if callable(self.rate) else as_tensor(self.rate, step.dtype)
        return convert(rate, step.dtype) * self.factor


@dataclass(frozen=True, slots=True)
class Groups:
    """An optimizer that consists of others, each for some of the parameters. Make one with `groups`.

    Arguments:
        rows: what chooses a group, its name in the state, and its optimizer; None leaves its parameters as they are.
        others: the optimizer of all parameters that no row chooses.

    State:
        by the name of each group the state of its optimizer, nested like a dictionary of its parameters by name.
    """

    rows: tuple[tuple[Chooses, str, Optimizer | None], ...]
    others: Optimizer

    @property
    def kept(self) -> dict[str, float]:
        """What the optimizers say of their states."""
        return {
            f"{name}.{entry}": factor
            for name, optimizer in self._optimizers()
            for entry, factor in kept_by(optimizer).items()
        }

    def freezes(self, parameters: Parameters) -> frozenset[str]:
        """The names of the parameters that stay as they are.

        Raises:
            NoSuchParameter: a group has no parameter.
        """
        leaves, tree = flatten(parameters)
        shapes = {name: tuple(leaf.shape) for name, leaf in zip(tree.names(), leaves, strict=True)}
        chosen = {name: self._group_of(name, shape) for name, shape in shapes.items()}
        for chooses, group, _ in self.rows:
            if group not in chosen.values():
                raise NoSuchParameter(_nothing(chooses, shapes))
        return frozenset(name for name, group in chosen.items() if dict(self._named())[group] is None)

    def initial_state(self, parameters: Parameters) -> State:
        """What each optimizer begins with, for its parameters."""
        own = self._divided(parameters)
        return {
            name: optimizer.initial_state(own[name]) for name, optimizer in self._optimizers() if own[name]
        }

    def update(
        self, gradients: Parameters, state: State, parameters: Parameters, step: Tensor
    ) -> tuple[Parameters, State, dict[str, Tensor]]:
        """One step; see `Optimizer`. It reports what the optimizer of the others reports; without others, the first one."""
        own, theirs = self._divided(parameters), self._divided(gradients)
        leaves, tree = flatten(parameters)
        updated = dict(zip(tree.names(), leaves, strict=True))
        new: dict[str, Any] = {}
        reported: dict[str, Tensor] = {}
        for name, optimizer in self._optimizers():
            if own[name]:
                moved, new[name], reports = optimizer.update(theirs[name], state[name], own[name], step)
                updated |= moved
                reported = reports if name == OTHERS else reported or reports
        return tree.unflatten([updated[name] for name in tree.names()]), new, reported

    def _named(self) -> list[tuple[str, Optimizer | None]]:
        return [*((name, optimizer) for _, name, optimizer in self.rows), (OTHERS, self.others)]

    def _optimizers(self) -> list[tuple[str, Optimizer]]:
        return [(name, optimizer) for name, optimizer in self._named() if optimizer is not None]

    def _group_of(self, name: str, shape: tuple[int, ...]) -> str:
        for chooses, group, _ in self.rows:
            if chooses(name, shape) if callable(chooses) else fnmatch.fnmatchcase(name, chooses):
                return group
        return OTHERS

    def _divided(self, parameters: Parameters) -> dict[str, dict[str, Any]]:
        """The parameters of every group, by name."""
        leaves, tree = flatten(parameters)
        parts: dict[str, dict[str, Any]] = {name: {} for name, _ in self._named()}
        for name, leaf in zip(tree.names(), leaves, strict=True):
            parts[self._group_of(name, tuple(leaf.shape))][name] = leaf
        return parts


def groups(chosen: Mapping[Any, Settings], others: Optimizer) -> Groups:
    """An optimizer with settings of their own for some of the parameters.

    Arguments:
        chosen: for each group what chooses its parameters: a pattern of dotted names, as `"*.bias"` or `"embed*"` (`*` stands
            for any text, dots too), or a function of a name and a shape; and what they get: `{"rate": 0.1}`, a factor of the
            learning rate, `{"decay": 0.0}`, a weight decay, or both; an optimizer; or `"frozen"`: no step, no decay, no
            moments, and no gradient is computed for them. The first group that chooses a parameter has it.
        others: the optimizer of all others; groups with a rate or a decay have this one with these.

    Raises:
        InvalidOptimizer: a group gets something else.

    Raises, in `training_step`:
        NoSuchParameter: a group has no parameter.
    """
    expect_optimizer(others)
    rows: list[tuple[Chooses, str, Optimizer | None]] = []
    for number, (chooses, settings) in enumerate(chosen.items()):
        name = chooses if isinstance(chooses, str) else getattr(chooses, "__name__", "")
        if not name.replace("_", "a").isalnum() or name in (OTHERS, *(row[1] for row in rows)):
            name = f"group{number}"
        rows.append((chooses, name, _optimizer(chooses, settings, others)))
    return Groups(tuple(rows), others)


def _optimizer(chooses: Chooses, settings: Settings, others: Optimizer) -> Optimizer | None:
    if settings == FROZEN:
        return None
    if isinstance(settings, Mapping):
        wrong = [name for name in settings if name not in ("rate", "decay")]
        numbers = all(is_within(value, 0) for value in settings.values())
        if settings and not wrong and numbers:
            return _changed(others, settings)
    elif not isinstance(settings, str):
        expect_optimizer(settings)
        return settings
    raise InvalidOptimizer(
        f"the group {chooses!r} was given {settings!r}; expected a factor 'rate' or a weight 'decay' of at least 0, as "
        "{'rate': 0.1}; an optimizer; or 'frozen'"
    )


def _changed(optimizer: Any, settings: Mapping[str, float]) -> Optimizer:
    """The optimizer with a rate times a factor, and with another decay of all its parameters."""
    changes: dict[str, Any] = {}
    fields = (
        {each.name for each in dataclasses.fields(optimizer)}
        if dataclasses.is_dataclass(optimizer)
        else set()
    )
    if "rest" in fields:
        changes["rest"] = _changed(optimizer.rest, settings)
    if "rate" in settings and "learning_rate" in fields:
        changes["learning_rate"] = Scaled(optimizer.learning_rate, settings["rate"])
    if "decay" in settings and "weight_decay" in fields:
        changes["weight_decay"] = settings["decay"]
        if "decays" in fields:
            changes["decays"] = _all
    if not changes:
        raise InvalidOptimizer(
            f"{optimizer} has no {' and '.join(settings)} to change for a group; expected one of pcp.optimizers, or an "
            "optimizer for the group itself"
        )
    changed: Optimizer = dataclasses.replace(optimizer, **changes)
    return changed


def _all(_name: str, _shape: tuple[int, ...]) -> bool:
    return True


def _nothing(chooses: Chooses, names: Iterable[str]) -> str:
    known = list(names)
    if callable(chooses):
        near = known[:6]
    else:
        bare = chooses.strip("*")
        near = difflib.get_close_matches(bare, known, 4, 0.3) or known[:6]
    return (
        f"the group {chooses!r} has none of the {len(known)} parameters, or groups before it have all that it names; expected "
        f"a pattern of names as {', '.join(near)}"
    )
