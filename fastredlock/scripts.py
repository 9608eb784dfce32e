"""The three Lua scripts and their SHA1, known before any server is asked.

Release is the script of the Redlock page, letter by letter: other clients load the
same text, so a server keeps one copy. A test asks a real server for each hash.
"""

from __future__ import annotations

RELEASE = (
    b'if redis.call("get",KEYS[1])==ARGV[1] then '
    b'return redis.call("del",KEYS[1]) else return 0 end'
)
RELEASE_SHA1 = b"79b954ef3863314d4ff2324b4a520053b6dcc018"

# Never re-creates a key: PEXPIRE on one that is gone does nothing, and a key with
# another's token is left alone.
EXTEND = (
    b'if redis.call("get",KEYS[1])==ARGV[1] then '
    b'return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end'
)
EXTEND_SHA1 = b"03be00070a274ed8e4d6ec301dc2dfa5556fc90c"

INSPECT = b'return {redis.call("get",KEYS[1]),redis.call("pttl",KEYS[1])}'
INSPECT_SHA1 = b"4574c638608cd5cce6392f33bac35d917f440469"
