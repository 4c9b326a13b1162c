"""The saddle command: one short function per verb."""
