"""Job-level priorities: how the pods of one job should lie (see the jobs spec, 1.9).

Scores are 0..100 in hundred-thousandths, followed by explicit tie-breaks in the lower digits: fewer idle GPUs, then
less idle cpu; the name of the node comes last of all, in the pick.
"""
