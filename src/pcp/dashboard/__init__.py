"""A run seen from outside its processes: followed by its file of metrics, served as a page, as JSON and for Prometheus."""
