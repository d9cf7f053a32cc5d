"""Functions of Tensors that are called with arrays: operations at once, whole functions by a plan that is kept."""
