"""Operations of StableHLO that the rows of the other tables do not have, with every attribute left out that may be left out."""

T = "tensor<4x4xf32>"
SUM = """({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %s = stablehlo.add %a, %b : tensor<f32>
  stablehlo.return %s : tensor<f32> })"""
ORDER = """({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %s = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %s : tensor<i1> })"""
ZERO = "%z = stablehlo.constant dense<0.0> : tensor<f32>"
SHAPE = "%c = stablehlo.constant dense<4> : tensor<2xi64>"
INDEX = "%i = stablehlo.constant dense<0> : tensor<1xi32>"
TOKEN = "%t = stablehlo.after_all : !stablehlo.token"
GROUPS = "replica_groups = dense<0> : tensor<1x1xi64>"


def function(body: str, result: str = T, argument: str = T, returned: str = "%r") -> str:
    """A program from `%x` to what its body calls `%r`."""
    return f"func.func @main(%x: {argument}) -> {result} {{\n{body}\nreturn {returned} : {result}\n}}"


def channel(number: int) -> str:
    """The attribute of a channel to another device (1), to the host (2) or from it (3)."""
    return f"channel_handle = #stablehlo.channel_handle<handle = 1, type = {number}>"


BARE: dict[str, str] = {
    "all_gather": function(f'%r = "stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, {GROUPS}}} : ({T}) -> {T}'),
    "all_reduce": function(f'%r = "stablehlo.all_reduce"(%x) {SUM} {{{GROUPS}}} : ({T}) -> {T}'),
    "all_reduce by channel": function(
        f'%r = "stablehlo.all_reduce"(%x) {SUM} {{{GROUPS}, {channel(1)}, use_global_device_ids}} : ({T}) -> {T}'
    ),
    "all_to_all": function(
        f'%r = "stablehlo.all_to_all"(%x) {{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 1 : i64, '
        f"{GROUPS}}} : ({T}) -> {T}"
    ),
    "attributes of others": function(
        "%r = stablehlo.add %x, %x {a.f = 1.5 : f32, a.d = dense<[1, 2]> : tensor<2xi32>, a.s = \"x@y\", a.t = f32, a.u, "
        f"a.l = [1 : i32, [2 : i64]], a.g = {{z = true}}, a.n = array<i32: 1, 2>}} : {T}"
    ),
    "cholesky": function(f'%r = "stablehlo.cholesky"(%x) : ({T}) -> {T}'),
    "collective_broadcast": function(f'%r = "stablehlo.collective_broadcast"(%x) {{{GROUPS}}} : ({T}) -> {T}'),
    "collective_permute": function(
        f'%r = "stablehlo.collective_permute"(%x) {{source_target_pairs = dense<0> : tensor<1x2xi64>}} : ({T}) -> {T}'
    ),
    "convolution": function(
        '%r = "stablehlo.convolution"(%x, %x) {dimension_numbers = #stablehlo.conv<[b, f]x[o, i]->[b, f]>, '
        f"feature_group_count = 1 : i64, batch_group_count = 1 : i64}} : ({T}, {T}) -> {T}"
    ),
    "custom_call": function(f"%r = stablehlo.custom_call @foo(%x) : ({T}) -> {T}"),
    "custom_call with everything": function(
        "%r = stablehlo.custom_call @foo(%x) {has_side_effect = true, api_version = 4 : i32, backend_config = {a = 1 : i32}, "
        "output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, "
        "operand_tuple_indices = []>], operand_layouts = [dense<[0, 1]> : tensor<2xindex>], "
        f"result_layouts = [dense<[0, 1]> : tensor<2xindex>]}} : ({T}) -> {T}"
    ),
    "dot": function(f"%r = stablehlo.dot %x, %x : ({T}, {T}) -> {T}"),
    "dot_general by an algorithm": function(
        "%r = stablehlo.dot_general %x, %x, contracting_dims = [0] x [1], algorithm = <lhs_precision_type = tf32, "
        "rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, "
        f"num_primitive_operations = 1, allow_imprecise_accumulation = false> : ({T}, {T}) -> {T}"
    ),
    "dynamic_broadcast_in_dim": function(
        f"{SHAPE}\n%r = stablehlo.dynamic_broadcast_in_dim %x, %c, dims = [0, 1] : ({T}, tensor<2xi64>) -> {T}"
    ),
    "exponential": function(f"%r = stablehlo.exponential %x : {T}"),
    "gather": function(
        f'{INDEX}\n%r = "stablehlo.gather"(%x, %i) {{dimension_numbers = #stablehlo.gather<offset_dims = [0], '
        "collapsed_slice_dims = [0], start_index_map = [0]>, slice_sizes = array<i64: 1, 4>} : "
        f"({T}, tensor<1xi32>) -> tensor<4xf32>",
        "tensor<4xf32>",
    ),
    "get_dimension_size": function(
        f"%r = stablehlo.get_dimension_size %x, dim = 0 : ({T}) -> tensor<i32>", "tensor<i32>"
    ),
    "infeed": function(f'{TOKEN}\n%r, %q = "stablehlo.infeed"(%t) : (!stablehlo.token) -> ({T}, !stablehlo.token)'),
    "is_inf": function(f"%r = chlo.is_inf %x : {T} -> tensor<4x4xi1>", "tensor<4x4xi1>"),
    "next_after": function(f"%r = chlo.broadcast_next_after %x, %x : ({T}, {T}) -> {T}"),
    "outfeed": function(
        f'{TOKEN}\n%q = "stablehlo.outfeed"(%x, %t) : ({T}, !stablehlo.token) -> !stablehlo.token', returned="%x"
    ),
    "partition_id": function(
        "%a = stablehlo.partition_id : tensor<ui32>\n%b = stablehlo.replica_id : tensor<ui32>\n"
        "%r = stablehlo.subtract %a, %b : tensor<ui32>",
        "tensor<ui32>",
    ),
    "recv": function(
        f'{TOKEN}\n%r, %q = "stablehlo.recv"(%t) {{{channel(3)}, is_host_transfer = true}} : '
        f"(!stablehlo.token) -> ({T}, !stablehlo.token)"
    ),
    "reduce_scatter": function(
        f'%r = "stablehlo.reduce_scatter"(%x) {SUM} {{scatter_dimension = 0 : i64, {GROUPS}}} : ({T}) -> {T}'
    ),
    "reduce_window": function(
        f'{ZERO}\n%r = "stablehlo.reduce_window"(%x, %z) {SUM} {{window_dimensions = array<i64: 1, 1>}} : '
        f"({T}, tensor<f32>) -> {T}"
    ),
    "rng": function(
        f"{ZERO}\n{SHAPE}\n%r = stablehlo.rng %z, %z, %c, distribution = UNIFORM : "
        f"(tensor<f32>, tensor<f32>, tensor<2xi64>) -> {T}"
    ),
    "rng_bit_generator": function(
        '%q, %r = "stablehlo.rng_bit_generator"(%x) {rng_algorithm = #stablehlo<rng_algorithm DEFAULT>} : '
        "(tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui32>)",
        "tensor<3xui32>",
        "tensor<2xui64>",
    ),
    "round_nearest_afz": function(f"%r = stablehlo.round_nearest_afz %x : {T}"),
    "scatter": function(
        f'{INDEX}\n%u = stablehlo.constant dense<1.0> : tensor<4xf32>\n%r = "stablehlo.scatter"(%x, %i, %u) {SUM} '
        "{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [0], "
        f"scatter_dims_to_operand_dims = [0], index_vector_dim = 0>}} : ({T}, tensor<1xi32>, tensor<4xf32>) -> {T}"
    ),
    "select_and_scatter": function(
        f'{ZERO}\n%r = "stablehlo.select_and_scatter"(%x, %x, %z) ({ORDER[1:-1]}, {SUM[1:-1]}) '
        f"{{window_dimensions = array<i64: 1, 1>}} : ({T}, {T}, tensor<f32>) -> {T}"
    ),
    "send": function(
        f'{TOKEN}\n%q = "stablehlo.send"(%x, %t) {{{channel(1)}}} : ({T}, !stablehlo.token) -> !stablehlo.token',
        returned="%x",
    ),
    "sort": function(f'%r = "stablehlo.sort"(%x) {ORDER} : ({T}) -> {T}'),
}  # fmt: skip
