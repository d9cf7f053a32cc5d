"""Operations, Programs and Plans: a function of Tensors is traced once, compiled once, and run often.

python examples/01_operations_and_plans.py
"""

import numpy as np

import pcp


def scaled_product(a: pcp.Tensor, b: pcp.Tensor, scale: pcp.Tensor) -> pcp.Tensor:
    """softmax(scale * a b), of shape (rows, columns)."""
    return pcp.softmax(scale * (a @ b))


def main() -> None:
    """Trace, plan, run, compose, and see a wrong shape refused before anything runs."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 3)).astype(np.float32), rng.standard_normal((3, 5)).astype(np.float32)

    # Tracing calls the function once, with Tensors that have shapes and types but no values.
    program = pcp.trace(scaled_product, pcp.spec((4, 3), "f32"), pcp.spec((3, 5), "f32"), pcp.spec((), "f32"))
    print(program)

    # A plan knows its inputs, outputs, operations and memory before it runs.
    plan = pcp.plan(program)
    print(plan)
    print("memory:", plan.memory)
    print("first operation:", plan.operations[0])
    result = np.asarray(plan.run(a, b, 0.5))
    print("rows sum to one:", bool(np.allclose(result.sum(axis=1), 1)))

    # Arguments that stay the same are bound once: they are then on the device.
    bound = plan.bind(a)
    print("bound:", np.array_equal(bound.run(b, 0.5), result))

    # Plans compose: called inside a traced function, a plan becomes a part of the new program.
    twice = pcp.plan(pcp.trace(lambda x, y: plan(x, y, 0.5) - plan(x, 2.0 * y, 0.25), a, b))
    print("composed:", float(np.abs(np.asarray(twice(a, b))).max()))

    # Shapes are checked while tracing, with the line of the mistake.
    try:
        pcp.trace(scaled_product, pcp.spec((4, 3), "f32"), pcp.spec((4, 5), "f32"), pcp.spec((), "f32"))
    except pcp.PCPError as error:
        print("refused:", error)


if __name__ == "__main__":
    main()
