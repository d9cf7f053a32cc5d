"""Products with weights stored in fewer bits: kernels for `pcp.quantised_product`."""

from pcp.kernels.quantised import native as native
