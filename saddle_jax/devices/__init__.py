"""How agents lie on hardware: lifting, exchange, placement, processes, and what each machine does best."""
