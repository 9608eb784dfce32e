"""The tests; each folder is one kind.

- unit: one source file each, `test_<source>.py`; no server, and no socket but in tls.
- behaviour: calls against real masters; one body runs over all three drivers.
- faults: servers, networks, processes and callers that misbehave.
- setups: the ways in which people set masters up, and the servers of `LocalMasters`.
- compat/<library>: a replaced library and ours, one body for both.
- sim, chaos, fuzz, mutants: made inputs; each says in itself how it is run.
- support: all that several of these share; `from tests.support.x import y`.

The folders are packages: `pytest` finds them from the root, and so do
`python -m tests.sim` and its kin, in a checkout and in an unpacked sdist.
"""
