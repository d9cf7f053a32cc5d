"""Native products with what follows them: a bias, an activation, a residual. The result is stored once."""

from pcp.ir.bindings import ir
from pcp.ir.composites import decomposition_of
from pcp.ir.toolkit.walking import walk_block
from pcp.kernels.activations.native import NUMBERED, activated
from pcp.kernels.artifact import Native
from pcp.kernels.groups import attributes_of, parts_of, places_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named
from pcp.kernels.native import native_call
from pcp.kernels.products.native import LIBRARY, STORED, applies_in, read
from pcp.kernels.products.product import Product
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.kernels.storage import Storage
from pcp.ops.movement import reshape
from pcp.rewrite.terms import Pattern, Roots, apply, compare, full, product, value, vector
from pcp.tensor import Tensor


def _forms() -> dict[str, Roots]:
    dot = product(value("left"), value("right"))
    biased, residual = dot + vector("bias"), full("residual")
    forms: dict[str, Roots] = {}
    for before, which in ((biased, ""), (dot, ", no bias")):
        forms |= {
            f"activation{which}": (dot, activated(before)),
            f"relu{which}": (dot, apply("select", compare("LE", before, 0.0), 0.0, before)),
            f"relu by maximum{which}": (dot, apply("maximum", before, 0.0)),
        }
    return forms | {
        "none, bias and residual": (residual + biased,),
        "none, bias": (biased,),
        "none, residual": (residual + dot,),
    }


EPILOGUE = Pattern("pcp.product_epilogue", _forms(), drops=True)


def product_of(op: ir.Operation) -> Product:
    """The product in the composite of a group."""
    block = decomposition_of(op).regions[0].blocks[0]
    (dot,) = (each for each in walk_block(block) if each.name == "stablehlo.dot_general")
    return Product.of(dot)


def _applies(op: ir.Operation) -> bool:
    product, ((_, inputs),) = product_of(op), places_of(op)
    if not product.is_f32 or not Named.of(op).is_f32 or 0 in (*product.x.shape, *product.y.shape):
        return False
    return "bias" not in inputs or product.sizes[1] == product.result.shape[-1]


def _build(op: ir.Operation, storage: Storage) -> list[Tensor]:
    product, (part,) = product_of(op), parts_of(op)
    operands, attributes = read(product, part.inputs["left"], part.inputs["right"])
    more = [part.inputs[name] for name in ("bias", "residual") if name in part.inputs]
    numbers = {name: int(name in part.inputs) for name in ("bias", "residual")}
    by = attributes_of(op).get("function", part.form.partition(",")[0].removesuffix(" by maximum"))
    numbers["activation"] = NUMBERED.index(by)
    results = [product.result] * len(op.results)
    more = [reshape(each, (-1,)) for each in more]
    return native_call(LIBRARY, f"product_{storage}", (*operands, *more), results, {**attributes, **numbers})


register_family(
    Family(
        "product_epilogue",
        "a product, a bias, and an activation or a residual",
        is_named(EPILOGUE.name),
        pattern=EPILOGUE,
    )
)
register_kernel(
    Kernel(
        "product_epilogue.native",
        "sums in float32, completed in registers before they are stored",
        _applies,
        Native(LIBRARY, _build),
        storages=STORED,
        applies_in=lambda op, storage: applies_in(product_of(op), storage),
    )
)
