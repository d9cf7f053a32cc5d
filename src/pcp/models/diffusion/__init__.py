"""Models that make images from noise, their schedules and their samplers, as functions of Tensors."""
