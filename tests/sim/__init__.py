"""The seeded simulator: the shipped engine between model servers, in virtual time.

Read in this order: world (events and clocks), server (a model Redis), network (what
happens to bytes between), process (a client machine around the shipped engine), driver
(its blocking driver, mirrored), worker (what its threads do), faults (what goes wrong),
judge and orphans (what must never be), schedule (one seed, one run), runner (many),
and README.md for what it shows.
"""
