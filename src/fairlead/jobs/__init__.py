"""Batch jobs: TYJob, a leader and sets of workers that are placed as one gang, and the queues they wait in."""
