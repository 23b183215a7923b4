"""The agent: runs in a carrier's pods, carries out the rounds of its tasks, and posts what it found."""
