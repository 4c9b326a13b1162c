"""When the command began: what a run prints as its time counts from there."""

import time

# The process has had something to do before this line: to start Python, and to import JAX.
began = time.perf_counter() - time.process_time()
