"""The SADDLe paper: its experiments, printed results, claims, costs and theory."""
