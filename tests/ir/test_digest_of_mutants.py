"""Whatever is changed of an operation changes the digest: every attribute of every operation, in turn.

A mutant need not be a valid program: it is hashed in the module in which it was made.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.ir.every_operation import bare, by_operation, layers

import pcp
from pcp.ir import DType, Program
from pcp.ir.bindings import context, ir
from pcp.ir.digest import block_digest
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.inlining import inline_calls, inline_composites

OTHER_WORD = {
    "true": "false", "false": "true", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "NE", "NE": "EQ",
    "HIGHEST": "HIGH", "HIGH": "HIGHEST", "FFT": "IFFT", "IFFT": "FFT", "RFFT": "IRFFT", "IRFFT": "RFFT",
    "NO_TRANSPOSE": "TRANSPOSE", "TRANSPOSE": "ADJOINT", "ADJOINT": "TRANSPOSE", "UNIFORM": "NORMAL", "NORMAL": "UNIFORM",
    "THREE_FRY": "PHILOX", "PHILOX": "THREE_FRY", "DEFAULT": "PHILOX", "i, o": "o, i", "o, i": "i, o",
}  # fmt: skip
PLACES = re.compile(r'(?<![\w."])-?\d+(?![\w."])|\bi, o\b|\bo, i\b|\b[A-Z_a-z]+\b')
WITHOUT_MEANING = {
    "compare_type": "the element type of the operands says it",
    "channel_handle": "its type: the operation says from where to where a channel leads",
}


def changed(attribute: ir.Attribute) -> Iterator[ir.Attribute]:
    """An attribute with one of its numbers or words changed, for each; those that MLIR takes."""
    body, _, type_ = str(attribute).partition(" : ")
    texts = [f'{body[:-1]}x"'] if body.startswith('"') else []
    for found in PLACES.finditer(body):
        word = found[0]
        other = str(int(word) + 1) if word.lstrip("-").isdigit() else OTHER_WORD.get(word)
        if other is not None:
            texts.append(body[: found.start()] + other + body[found.end() :])
    for text in texts:
        try:
            yield ir.Attribute.parse(f"{text} : {type_}" if type_ else text)
        except ir.MLIRError:  # no such attribute, as with dimensions that repeat
            continue


def attributes_of(module: ir.Module) -> list[tuple[ir.Operation, str]]:
    """Every attribute of every operation of a program."""
    found: list[tuple[ir.Operation, str]] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name not in ("func.func", "builtin.module", "stablehlo.constant"):
            found.extend((op, name) for name in op.attributes)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def test_every_attribute_counts() -> None:
    """Each kind of attribute of each kind of operation is changed once, in the first program that has it."""
    seen: set[tuple[str, str]] = set()
    mutants = 0
    for label, program in [*by_operation(), *bare(), *layers()]:
        module = Program.parse(program.text).module()
        inline_composites(module)
        inline_calls(module)
        block = main_of(module).regions[0].blocks[0]
        with context():
            whole = block_digest(block)
            for op, name in attributes_of(module):
                if (op.name, name) in seen or name in WITHOUT_MEANING:
                    continue
                attribute = op.attributes[name]
                for other in changed(attribute):
                    op.attributes[name] = other
                    assert block_digest(block) != whole, f"{label}: {op.name} {name} = {attribute} or {other}"
                    mutants += 1
                    seen.add((op.name, name))
                if isinstance(attribute, ir.UnitAttr) and "." in name:  # the bindings leave out no others
                    del op.attributes[name]
                    assert block_digest(block) != whole, f"{label}: {op.name} {name}"
                    op.attributes[name] = attribute
    assert mutants > 100
    assert len(seen) > 60


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("size", [1, 7, 300])
def test_every_element_of_a_constant_counts(dtype: DType, size: int) -> None:
    random = np.random.default_rng(size)
    either = np.array([1, 2] if dtype.is_float else [0, 1]).astype(dtype.numpy)  # f8E8M0FNU has no zero
    drawn = random.integers(0, 2, size)
    place = np.arange(size) == random.integers(size)
    elements, other = either[drawn], either[drawn ^ place]

    def digest(array: Any) -> str:
        return pcp.trace(lambda x: (x, array), pcp.spec((2,), "f32")).digest

    assert digest(elements) == digest(elements.copy())
    assert digest(elements) != digest(other)
