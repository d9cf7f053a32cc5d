"""What changes gradients in a module of PyTorch and leaves no trace in the graph of `torch.export`: found, and refused by name."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pcp.errors import PCPError

_ADVICE = {
    "CheckpointFunction": "switch gradient checkpointing off, or give it use_reentrant=False: pcp.value_and_grad has remat=",
    "SyncBatchNorm": "use torch.nn.BatchNorm*d, whose statistics are those of one process",
}
_WRITTEN_OUT = (
    "write its forward out with operations of PyTorch, so that its gradient is theirs; or, if its gradient is not wanted, "
    "call it under torch.no_grad()"
)


class OwnDerivative(PCPError):
    """A `torch.autograd.Function` or a hook on gradients: the graph of a module does not hold what it does to them."""


@contextmanager
def own_derivatives_refused(torch: Any, module: Any) -> Iterator[None]:
    """Refuse hooks on gradients of a module, and those and functions with their own backward that are called meanwhile.

    Raises:
        OwnDerivative: the message names them and says what to do.
    """
    _refuse_hooks(torch, module)
    functions = torch.autograd.function
    calls = functions._is_setup_context_defined  # every Function.apply asks it first

    def called(setup_context: Any) -> Any:
        kind = sys._getframe(1).f_locals.get("cls")
        if kind is not None and torch.is_grad_enabled() and not _is_of_pytorch(kind):
            advice = _ADVICE.get(kind.__name__, _WRITTEN_OUT)
            raise OwnDerivative(
                f"{kind.__module__}.{kind.__qualname__} is a torch.autograd.Function, which brings its own backward, and "
                f"torch.export keeps its forward alone; {advice}"
            )
        return calls(setup_context)

    def hooked(_: Any, hook: Callable[..., Any]) -> Any:
        raise OwnDerivative(
            f"the module's forward registers the hook {_described(hook)} on a tensor's gradient, which torch.export leaves "
            "out; leave it out yourself, or write what it does as an operation of the forward pass"
        )

    places = [(functions, "_is_setup_context_defined", called)]
    places += [(torch.Tensor, name, hooked) for name in ("register_hook", "register_post_accumulate_grad_hook")]
    before = [getattr(owner, name) for owner, name, _ in places]
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name, _), value in zip(places, before, strict=True):
            setattr(owner, name, value)


def _is_of_pytorch(kind: type) -> bool:
    """Whether it is one of those that PyTorch itself puts around modules and that change nothing."""
    return kind.__name__ == "BackwardHookFunction"


def _refuse_hooks(torch: Any, module: Any) -> None:
    found = [
        f"  {name or 'the module'}: {_described(hook)} ({kind.strip('_')})"
        for name, part in module.named_modules()
        for kind in ("_backward_hooks", "_backward_pre_hooks")
        for hook in getattr(part, kind).values()
    ]
    found += [
        f"  {name}: {_described(hook)} ({kind.strip('_')})"
        for name, parameter in module.named_parameters()
        for kind in ("_backward_hooks", "_post_accumulate_grad_hooks")
        for hook in (getattr(parameter, kind, None) or {}).values()
    ]
    everywhere = torch.nn.modules.module
    found += [
        f"  every module: {_described(hook)}"
        for kind in ("_global_backward_hooks", "_global_backward_pre_hooks")
        for hook in getattr(everywhere, kind, {}).values()
    ]
    if found:
        lines = "\n".join(found)
        raise OwnDerivative(
            f"hooks on gradients are no part of the graph that torch.export makes:\n{lines}\n"
            "take them off before the import (handle.remove()), or write what they do as operations of the forward pass"
        )


def _described(hook: Any) -> str:
    name = getattr(hook, "__qualname__", type(hook).__name__)
    return f"{getattr(hook, '__module__', '')}.{name}"
