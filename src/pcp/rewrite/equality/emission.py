"""Writing a form as a program: its operations stand where their last operand is known."""

from collections.abc import Sequence
from dataclasses import replace

from pcp.ir import Builder, Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import concatenate, reshape, transpose
from pcp.rewrite.equality.form import Form, FormMismatch, PartForm, Step, check_equal, shapes_of
from pcp.rewrite.equality.matrices import Matrices, Place, matrices_in
from pcp.tensor import Tensor, building


def equal_program(program: Program, form: Form) -> Program:
    """The program in another form.

    Raises:
        FormMismatch: the form does not fit the program, or does not compute the same, or makes another program than it did.
    """
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    parts = matrices_in(block).parts
    places = [number for each in form.parts for number in each.parts]
    if len(set(places)) < len(places) or any(not 0 <= number < len(parts) for number in places):
        raise FormMismatch(
            f"the form computes parts {places} otherwise; the program has {len(parts)} that may be, expected each once"
        )
    for each in form.parts:
        if len({parts[number].kind for number in each.parts}) > 1:
            raise FormMismatch(
                f"parts {list(each.parts)} of the program are not alike; expected one form for those that are"
            )
        check_equal(each, parts[each.parts[0]])
    writing = _Writing(block)
    with context(), building(Builder(module, block)) as builder:
        for each in form.parts:
            for number in each.parts:
                writing.write(each, parts[number], builder)
        erase_dead(block)
    equal = Program.from_module(module)
    if form.makes and equal.digest != form.makes:
        raise FormMismatch(
            f"the form made program {form.makes[:12]}, and here it makes {equal.digest[:12]}; expected the version of PCP that "
            "made it"
        )
    return equal


def made_by(program: Program, form: Form) -> tuple[Form, Program]:
    """The form with the digest of the program that it makes, and that program.

    Raises:
        FormMismatch: as `equal_program`.
    """
    equal = equal_program(program, replace(form, makes=""))
    return replace(form, makes=equal.digest), equal


class _Writing:
    """Operations in a block, whose order is that of before."""

    def __init__(self, block: ir.Block) -> None:
        self.block = block
        self.operations = [view.operation for view in block.operations]

    def write(self, form: PartForm, part: Matrices, builder: Builder) -> None:
        """Compute a part by a form; the user's line is that of its first root."""
        shapes = shapes_of(form, part)
        builder.pinned = self.operations[part.roots[0][0][0]].location
        after: list[int] = []
        results: list[Tensor] = []
        for step, shape in zip(form.steps, shapes, strict=True):
            own = [part.terms[step.numbers[0]].leaf[0]] if step.op == "Leaf" else []
            after.append(max([-1, *own, *(after[operand] for operand in step.operands)]))
            with builder.before(self.operations[after[-1] + 1]):
                if step.op == "Leaf":
                    leaf = Tensor(self.value_at(part.terms[step.numbers[0]].leaf), builder)
                    results.append(reshape(leaf, shape) if leaf.shape != shape else leaf)
                else:
                    results.append(computed(step, [results[operand] for operand in step.operands]))
        for (place, _), step_of_root in zip(part.roots, form.roots, strict=True):
            value, begin = self.value_at(place), after[step_of_root]
            if form.steps[step_of_root].op == "Leaf":
                raise FormMismatch(
                    f"step {step_of_root} of the form is a leaf, and a result; expected something computed"
                )
            if any(self.index(use.owner) <= begin for use in value.uses):
                raise FormMismatch(f"step {step_of_root} of the form would be computed behind what takes it")
            with builder.before(self.operations[begin + 1]):
                shaped = reshape(results[step_of_root], Tensor(value, builder).shape)
            value.replace_all_uses_with(shaped.value)

    def value_at(self, place: Place) -> Value:
        """The value at a place."""
        index, which = place
        value: Value = self.block.arguments[which] if index < 0 else self.operations[index].results[which]
        return value

    def index(self, op: ir.Operation | ir.OpView) -> int:
        """The number of the operation of the block that an operation is, or is in; of one that was written, a large one."""
        outer = op.operation
        while outer.block != self.block:
            assert outer.parent is not None
            outer = outer.parent.operation
        return self.operations.index(outer) if outer in self.operations else len(self.operations)


def computed(step: Step, of: Sequence[Tensor]) -> Tensor:
    """An operation on matrices."""
    match step.op:
        case "Dot":
            return dot_general(of[0], of[1], contract=((1,), (0,)))
        case "Add":
            return of[0] + of[1]
        case "T":
            return transpose(of[0], (1, 0))
        case "Beside":
            return concatenate(of, 1)
        case "Below":
            return concatenate(of, 0)
        case "Columns":
            return of[0][:, step.numbers[0] : step.numbers[1]]
        case _:
            return of[0][step.numbers[0] : step.numbers[1]]
