"""Devices and processes: vmap and shard_map over agents, exchange of rows, placement, hardware policy."""
