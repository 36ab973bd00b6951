"""What runs on compute nodes inside an allocation: node agent, zygote, worker, sandbox, slices.

Loaded into the researcher's own environment, so it imports nothing of the rest of the project and, of third
parties, only msgpack (which is hidden again before a handler is loaded).
"""
