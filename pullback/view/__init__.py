"""A page that shows a call: its source, stages, kernels, memory and time. One HTML file that needs no server."""
