func.func public @main(%x: tensor<64x128xf32>, %y: tensor<128x96xf32>) -> tensor<64x96xf32> {
  %0 = stablehlo.convert %x : (tensor<64x128xf32>) -> tensor<64x128xbf16>
  %1 = stablehlo.convert %y : (tensor<128x96xf32>) -> tensor<128x96xbf16>
  %2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0]
    : (tensor<64x128xbf16>, tensor<128x96xbf16>) -> tensor<64x96xf32>
  return %2 : tensor<64x96xf32>
}
