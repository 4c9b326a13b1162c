"""Where agents are computed: lifting, exchange, placement, processes, and what each machine does best."""
