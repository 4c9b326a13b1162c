"""Tables, pictures and HTML pages of runs; nothing here trains."""
