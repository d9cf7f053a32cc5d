"""What changes gradients in a module of PyTorch and leaves no trace in the graph of `torch.export`: found, and refused by name.

Of a `torch.autograd.Function` the graph keeps the forward. That is enough where its backward is the derivative of that, only
written by hand; so both are compared on random numbers, and only a function whose backward is another is refused.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pcp.errors import PCPError

_LOG = logging.getLogger("pcp.importers.torch")

_ASKED = "_is_setup_context_defined"
_ADVICE = {
    "CheckpointFunction": "switch gradient checkpointing off, or give it use_reentrant=False: pcp.value_and_grad has remat=",
    "SyncBatchNorm": "use torch.nn.BatchNorm*d, whose statistics are those of one process",
}
_WRITTEN_OUT = (
    "write its forward out with operations of PyTorch, so that its gradient is theirs; or, if its gradient is not wanted, "
    "call it under torch.no_grad()"
)


class OwnDerivative(PCPError):
    """A `torch.autograd.Function` with a backward of its own, or a hook on gradients: no graph holds what they do."""


@contextmanager
def own_derivatives_refused(torch: Any, module: Any) -> Iterator[None]:
    """Refuse hooks on gradients of a module, and those and functions with their own backward that are called meanwhile.

    Raises:
        OwnDerivative: the message names them and says what to do.
    """
    _refuse_hooks(torch, module)
    functions = torch.autograd.function
    # Every Function.apply calls it first, also one that was taken from its class before. It is private, and may go.
    asked = getattr(functions, _ASKED, None)
    called: dict[str, tuple[type, tuple[Any, ...]]] = {}

    def recorded(setup_context: Any) -> Any:
        names = sys._getframe(1).f_locals
        kind = names.get("cls")
        if kind is not None and torch.is_grad_enabled() and not _is_of_pytorch(kind):
            arguments = tuple(names.get("args", ()))
            called.setdefault(f"{kind!r} {[getattr(x, 'shape', x) for x in arguments]}", (kind, arguments))
        return None if asked is None else asked(setup_context)

    def hooked(_: Any, hook: Callable[..., Any]) -> Any:
        raise OwnDerivative(
            f"the module's forward registers the hook {_described(hook)} on a tensor's gradient, which torch.export leaves "
            "out; leave it out yourself, or write what it does as an operation of the forward pass"
        )

    places: list[tuple[Any, str, Callable[..., Any]]] = (
        [] if asked is None else [(functions, _ASKED, recorded)]
    )
    if asked is None:
        _LOG.warning(
            "this version of PyTorch (%s) does not show which torch.autograd.Function a module calls, so a backward of its own "
            "is not found; import with check=True, which compares gradients",
            torch.__version__,
        )
    places += [
        (torch.Tensor, name, hooked) for name in ("register_hook", "register_post_accumulate_grad_hook")
    ]
    before = [getattr(owner, name) for owner, name, _ in places]
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name, _), value in zip(places, before, strict=True):
            setattr(owner, name, value)
    for kind, arguments in called.values():
        if not _is_derivative_of_forward(torch, kind, arguments):
            raise OwnDerivative(
                f"{kind.__module__}.{kind.__qualname__} is a torch.autograd.Function, whose backward is not the derivative of "
                f"its forward, and torch.export keeps the forward alone; {_ADVICE.get(kind.__name__, _WRITTEN_OUT)}"
            )


class _Context:
    """What a forward that is called alone may do to the context that it is given."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.needs_input_grad = tuple(getattr(x, "requires_grad", False) for x in arguments)

    def save_for_backward(self, *_: Any) -> None:
        """Nothing is kept: there is no backward."""

    mark_non_differentiable = mark_dirty = save_for_forward = set_materialize_grads = save_for_backward


def _is_derivative_of_forward(torch: Any, kind: Any, arguments: Sequence[Any]) -> bool:
    """Whether the backward of a function gives what PyTorch makes of its forward, at random numbers."""
    try:
        generator = torch.Generator().manual_seed(0)
        examples = [_random_like(torch, x, generator) for x in arguments]
        wanted = [x for x in examples if getattr(x, "requires_grad", False)]
        new_style = _takes_no_context(torch, kind)
        alone = kind.forward(*examples) if new_style else kind.forward(_Context(examples), *examples)
        gradients = []
        for outputs in (kind.apply(*examples), alone):
            moving = [
                y
                for y in (outputs if isinstance(outputs, tuple) else (outputs,))
                if getattr(y, "requires_grad", False)
            ]
            seeds = [torch.cos(torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape)) for y in moving]
            gradients.append(torch.autograd.grad(moving, wanted, seeds, allow_unused=True))
        pairs = [
            (torch.zeros_like(x) if g is None else g for g in pair)
            for x, *pair in zip(wanted, *gradients, strict=True)
        ]
        return all(torch.allclose(one, other, rtol=1e-3, atol=1e-4) for one, other in pairs)
    except Exception as error:  # a forward may do anything with what it is given
        _LOG.info("%s cannot be compared with the derivative of its forward: %s", kind.__qualname__, error)
        return False


def _takes_no_context(torch: Any, kind: Any) -> bool:
    """Whether a function saves what its backward needs in a `setup_context`, so that its forward takes no context."""
    return bool(kind.setup_context != torch.autograd.Function.setup_context)


def _random_like(torch: Any, value: Any, generator: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return torch.randint(0, 2, value.shape, generator=generator).to(value.dtype)
    return torch.randn(value.shape, generator=generator).to(value.dtype).requires_grad_()


def _is_of_pytorch(kind: type) -> bool:
    """Whether it is one of those that PyTorch itself puts around modules and that change nothing."""
    # A custom operation of torch.library stays whole in the graph: it has a row, or is refused there.
    return kind.__name__ == "BackwardHookFunction" or kind.__module__.startswith("torch._library.")


def _refuse_hooks(torch: Any, module: Any) -> None:
    hooks = [
        f"  {name or 'the module'}: {_described(hook)} ({kind.strip('_')})"
        for name, part in module.named_modules()
        for kind in ("_backward_hooks", "_backward_pre_hooks")
        for hook in getattr(part, kind).values()
    ]
    hooks += [
        f"  {name}: {_described(hook)} ({kind.strip('_')})"
        for name, parameter in module.named_parameters()
        for kind in ("_backward_hooks", "_post_accumulate_grad_hooks")
        for hook in (getattr(parameter, kind, None) or {}).values()
    ]
    everywhere = torch.nn.modules.module
    hooks += [
        f"  every module: {_described(hook)}"
        for kind in ("_global_backward_hooks", "_global_backward_pre_hooks")
        for hook in getattr(everywhere, kind, {}).values()
    ]
    if hooks:
        lines = "\n".join(hooks)
        raise OwnDerivative(
            f"hooks on gradients are no part of the graph that torch.export makes:\n{lines}\n"
            "take them off before the import (handle.remove()), or write what they do as operations of the forward pass"
        )


def _described(hook: Any) -> str:
    name = getattr(hook, "__qualname__", type(hook).__name__)
    return f"{getattr(hook, '__module__', '')}.{name}"
