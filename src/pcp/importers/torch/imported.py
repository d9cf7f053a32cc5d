"""A module of PyTorch as a Program, with its weights and buffers beside it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pcp.errors import PCPError
from pcp.importers.torch.arrays import Arrays, example_from, numbers_of
from pcp.importers.torch.caches import without_caches
from pcp.importers.torch.checking import check_beside_torch
from pcp.importers.torch.dynamic import mapped, of_exported
from pcp.importers.torch.exporting import exported, torch_package
from pcp.importers.torch.interpreting import Interpreter, check_supported
from pcp.importers.torch.signature import Signature
from pcp.ir import Program, Role
from pcp.ir.beginnings import Beginning
from pcp.ir.expecting import HoldsProgram
from pcp.ops import random
from pcp.planning import Plan, plan
from pcp.planning.conditions import Place
from pcp.symbolic.numbers import numbers_in, numbers_in_text
from pcp.tensor import Tensor
from pcp.tracing import at_sizes, specs_of, trace

_COST = 40
"""How many times as long as tracing a function of PCP takes `torch.export`, about."""

_UNSEEN = "what PyTorch and Python choose by sizes is not seen"

RANDOM_KEY = "random_key"
"""The buffer that holds the key of the random generator."""


class NoModule(PCPError):
    """Something given to `from_torch` that is neither a module nor a function."""


class TwiceGiven(PCPError):
    """An argument that was given in `keywords` and by its name."""


class NoSuchResult(PCPError):
    """A result of a module that it does not return."""


class HiddenParameters(PCPError):
    """A function that uses a module or a trainable tensor, whose parameters would become constants."""


@dataclass(frozen=True)
class Imported(HoldsProgram):
    """What `from_torch` makes of a module. Called with its inputs it computes; `pcp.plan` and `pcp.jit` bind its weights.

    Arguments:
        program: `(weights, inputs...) -> outputs`; `(weights, buffers, inputs...) -> outputs` if it reads buffers; and
            `(weights, buffers, inputs...) -> (buffers, outputs)` if it also changes some: then buffers are state.
        weights: the trainable parameters by their names in the module; one that has several names has the first.
        buffers: what else it reads, by name: buffers, frozen parameters, and `random_key` if there is a seed.
    """

    program: Program
    weights: Arrays
    buffers: Arrays

    def held(self) -> dict[str, Any]:
        """The weights, and the buffers where no call changes them."""
        first = self.program.argument_tree.children[0].leaf_count
        last = first + (self.program.argument_tree.children[1].leaf_count if self.buffers else 0)
        is_kept = all(entry.role is Role.weight for entry in self.program.arguments[first:last])
        return {"weights": self.weights} | ({"buffers": self.buffers} if self.buffers and is_kept else {})

    def plan(
        self, device: Place | Sequence[Place] | None = None, tolerance: float | None = None, **named: Any
    ) -> Plan:
        """As `pcp.plan` of this: its weights are bound, and its buffers, where no call changes them.

        Arguments:
            device, tolerance, named: as of `pcp.plan`; with a tolerance, what weights alone decide may be computed once.

        Raises:
            PCPError: what `pcp.plan` and `Plan.bind` raise.
        """
        return plan(self, device, tolerance, **named)


def from_torch(
    module: Any,
    *inputs: Any,
    keywords: Mapping[str, Any] | None = None,
    output: str | Callable[[Any], Any] | None = None,
    seed: int | None = None,
    check: bool = False,
    constraints: Sequence[str] = (),
    **named: Any,
) -> Imported:
    """A Program that computes what a module of PyTorch does, in the mode (`train()` or `eval()`) in which it stands.

    Arguments:
        module: a `torch.nn.Module`, a function of tensors that has no parameters, or what `torch.export.export` made; that
            brings its arguments, of which dynamic sizes become symbols (`s77`), and their ranges.
        inputs: an example of each argument of `forward`, nested: tensors, arrays, or what `pcp.spec` makes. Shapes and element
            types become fixed; of floats, mean and deviation say what `pcp.plan` draws where it has no example. Numbers,
            strings, flags and None are constants of the program. Where a spec has symbols, the module is exported at a few
            sizes, and the program is a `SymbolicProgram`.
        keywords: examples of keyword arguments; those that are tensors follow the others as arguments of the program.
        named: the same, written as the module is called: `from_torch(model, input_ids=tokens)`. An argument that is called
            like one of `from_torch` goes into `keywords`.
        output: from what the module returns to what the program does, as `lambda output: output["loss"]`, or the name of one
            result, as `"loss"`; None: all of it.
        seed: of the random numbers that the module draws, as dropout does in training; the key of the generator becomes
            the buffer `random_key`, which every call replaces. The numbers are not those of PyTorch's generator.
        check: whether to run the program and the module beside one another at once, and compare results, changed buffers, and
            the gradients of random cotangents for weights and floating-point inputs. Examples that are tensors or arrays are
            taken as they are; in the place of specs stand random numbers, of integers 0 and 1.
        constraints: what holds of symbols, as in `pcp.trace`.

    Returns:
        The program, and the weights and buffers by name: NumPy arrays that share the module's memory where they can.
        A model's output object becomes a dictionary, without the cache that models of transformers return unasked.

    Raises:
        TorchMissing: PyTorch is not installed.
        NoModule: `module` is neither a module nor a function, or the class of one.
        TwiceGiven: an argument stands in `keywords` and beside them.
        NoSuchResult: `output` names a result that the module does not return.
        HiddenParameters: it is a function that uses parameters of a module.
        OwnDerivative: a `torch.autograd.Function` or a hook changes gradients in a way that no graph holds.
        CannotExport: `torch.export` refuses the module.
        DynamicShape: the size of a tensor depends on the values of others.
        UnsupportedOperations: operations have no counterpart; all are listed, with the lines that they come from.
        RandomWithoutSeed: the module draws random numbers, and there is no seed.
        CannotImport: an operation cannot take these operands.
        ImportDiffers: with `check`, a result or a gradient differs; the message names each with its error and tolerance.
        CannotCheck: with `check`, the module draws random numbers.
        InvalidConstraint, BuiltDifferently: of symbols, as `pcp.trace`.
    """
    if isinstance(module, type):
        raise NoModule(
            f"the class {module.__name__} was given to from_torch; expected an instance: make one first, as "
            f"model = {module.__name__}({_taken_by(module)}), and give that: from_torch(model, ...)"
        )
    twice = sorted(named.keys() & (keywords or {}).keys())
    if twice:
        raise TwiceGiven(f"{', '.join(twice)} stands in keywords= and beside it; give each argument once")
    module, positional, by_name, more = of_exported(module, inputs, {**(keywords or {}), **named})
    chosen = result_named(output) if isinstance(output, str) else output
    first: list[Imported] = []

    def make(closed: tuple[Any, ...]) -> Program:
        with without_caches(module):  # here, as other sizes are asked for later
            imported = _imported(module, closed[0], closed[1], chosen, seed, check and not first)
        if not first:
            first.append(imported)
        return imported.program

    open_arguments = (tuple(positional), dict(by_name))
    conditions = (*constraints, *more)
    program = at_sizes(open_arguments, conditions, make, mapped, _numbers_in(module), _COST, _UNSEEN)
    return replace(first[0], program=program)


def _numbers_in(module: Any) -> tuple[int, ...]:
    """Integers in the code and the attributes of a module and of those inside of it."""
    inner = list(module.modules()) if hasattr(module, "modules") else []
    kinds = dict.fromkeys(type(entry).forward for entry in inner)
    held = [value for entry in inner for value in vars(entry).values() if isinstance(value, int)]
    written = numbers_in_text(str(getattr(module, "code", "")))  # of a graph that was exported
    return numbers_in(module, *kinds, *dict.fromkeys((*held, *written)))


def _imported(
    module: Any,
    inputs: tuple[Any, ...],
    keywords: Mapping[str, Any],
    output: Callable[[Any], Any] | None,
    seed: int | None,
    check: bool,
) -> Imported:
    """As `from_torch`, where all sizes are numbers."""
    wrapped = _as_module(module)
    examples = [example_from(entry) for entry in inputs]
    named = {name: example_from(entry) for name, entry in keywords.items()}
    graph = exported(wrapped, examples, named)
    check_supported(graph.graph, seed is not None)
    border = Signature(wrapped, graph, [*examples, *named.values()])
    buffers = dict(border.buffers) if seed is None else {**border.buffers, RANDOM_KEY: random.key(seed)}
    changes = bool(border.changed) or seed is not None

    def computed(weights: dict[str, Tensor], *rest: Any) -> Any:
        held: dict[str, Tensor] = rest[0] if buffers else {}
        interpreter = Interpreter(held.get(RANDOM_KEY))
        values = border.values(weights, held, rest[1:] if buffers else rest)
        outputs = interpreter.run(graph.graph, values, border.attribute)
        new, returned = border.results(outputs)
        chosen = returned if output is None else output(returned)
        if not changes:
            return chosen
        successors = {**held, **new}
        if interpreter.key is not None:
            successors[RANDOM_KEY] = interpreter.key
        return successors, chosen

    _name_arguments(computed, module, bool(buffers), [_place(i, inputs, named) for i in border.places])
    held_specs = [specs_of(buffers, Role.state if changes else Role.weight)] if buffers else []
    program = trace(computed, specs_of(border.weights), *held_specs, *border.specs)
    if check:
        held_arrays = [border.weights, buffers] if buffers else [border.weights]
        check_beside_torch(wrapped, program, held_arrays, inputs, keywords, output)
    everything = [*inputs, *keywords.values()]
    begins = _begins(program, border.weights, buffers, [everything[place] for place in border.places])
    return Imported(replace(program, begins=begins), border.weights, buffers)


def _begins(
    program: Program, weights: Arrays, buffers: Arrays, inputs: Sequence[Any]
) -> dict[str, Beginning]:
    """What weights and buffers begin with, and of what kind examples of inputs are, by the names of the program's arguments."""
    named = program.argument_tree.unflatten([entry.name for entry in program.arguments])
    begins = {named[0][name]: Beginning.like(array) for name, array in weights.items()}
    kept = {named[1][name]: Beginning.of(array) for name, array in buffers.items()}
    examples = zip(named[2 if buffers else 1 :], map(numbers_of, inputs), strict=True)
    given = {name: Beginning.given(array) for name, array in examples if array is not None}
    return begins | {name: each for name, each in (kept | given).items() if each is not None}


def _as_module(module: Any) -> Any:
    torch = torch_package()
    if isinstance(module, torch.nn.Module):
        return module
    if not callable(module):
        raise NoModule(
            f"{type(module).__name__} was given to from_torch; expected a torch.nn.Module, or a function of tensors"
        )

    for name, value in _used_names(module).items():
        if isinstance(value, torch.nn.Module) or getattr(value, "requires_grad", False):
            raise HiddenParameters(
                f"the function uses {name}, a {type(value).__name__}, whose parameters would become constants; give from_torch "
                "a torch.nn.Module that holds it and does the same in its forward"
            )
    # PyTorch keeps the lines of functions named `forward`, and of those that are entered here.
    remember = getattr(torch.fx.proxy, "_register_stack_trace_anchor", None)
    if remember is not None:
        remember(module)

    class Function(torch.nn.Module):  # type: ignore[misc, name-defined]  # PyTorch is known only here
        def forward(self, *arguments: Any, **keywords: Any) -> Any:
            return module(*arguments, **keywords)

    return Function()


def _taken_by(kind: type) -> str:
    """What the class of a module takes, as one writes it."""
    try:
        parameters = list(inspect.signature(kind).parameters.values())
    except (TypeError, ValueError):
        return "..."
    required = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return ", ".join(required)


def result_named(name: str) -> Callable[[Any], Any]:
    """The function that takes one of the results that a module returns by name."""

    def chosen(returned: Any) -> Any:
        names = list(returned) if isinstance(returned, Mapping) else []
        if name not in names:
            raise NoSuchResult(
                f"output is {name!r}, but the module returns {', '.join(names) or 'no results by name'}"
                + ("; a model of transformers computes its loss where it is given labels" * (name == "loss"))
            )
        return returned[name]

    return chosen


def _used_names(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function refers to outside of itself."""
    try:
        used = inspect.getclosurevars(function)
    except TypeError:  # not written in Python
        return {}
    return {**used.globals, **used.nonlocals, "self": getattr(function, "__self__", None)}


def _place(number: int, inputs: Sequence[Any], named: Mapping[str, Any]) -> int | str:
    """How the caller gave an argument: the number of a positional one, or its name."""
    return number if number < len(inputs) else list(named)[number - len(inputs)]


def _name_arguments(
    function: Callable[..., Any], module: Any, has_buffers: bool, places: Sequence[int | str]
) -> None:
    """Give the traced function a signature, from which the program takes the names of its arguments.

    An argument that is called as what the module holds gets an underscore behind it, as Python's keywords do: `weights_`.
    """
    try:
        parameters = inspect.signature(getattr(module, "forward", module)).parameters.values()
    except ValueError:  # a function written in C++ need not say what it takes
        parameters = {}.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [parameter.name for parameter in parameters if parameter.kind in positional]
    names = [
        place if isinstance(place, str) else known[place] if place < len(known) else f"input_{place}"
        for place in places
    ]
    leading = ["weights", "buffers"] if has_buffers else ["weights"]
    names = [f"{name}_" if name in leading else name for name in names]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in (*leading, *names)])
    function.__signature__ = signature  # type: ignore[attr-defined]  # functions may have attributes
