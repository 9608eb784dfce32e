# What is locked: a key, and what kind of lock is asked for under it. Pure.
#
# A plain key is bytes, of kind ONE; all of several keys are a tuple. Of any other kind
# the caller names a KeyOfKind, which its round copies.


cdef class KeyOfKind:
    """A key, and which kind of lock is asked for under it; a plain key is bytes."""

    cdef readonly bytes name
    cdef readonly int count              # of its permits, where it is a semaphore's
    cdef int kind

    def __init__(self, bytes name not None, int kind):
        key_check_kind(kind)
        key_set(self, name, kind, 0)


cdef int key_check_kind(int kind) except -1:
    # Others have a class of their own, for what else they have.
    if not KIND_ONE <= kind < KINDS or kind == KIND_SEVERAL or kind == KIND_SLOT:
        raise ValueError("no such kind of a key")
    return 0


cdef int key_set(KeyOfKind self, bytes name, int kind, int count) except -1:
    # Of arguments that are checked.
    self.name = name
    self.kind = kind
    self.count = count
    return 0


cdef class KindEncoder:
    """Make a KeyOfKind of a resource.

    `encode`: from a resource to its key, or an error.
    """

    cdef readonly object encode
    cdef readonly int kind

    def __init__(self, encode not None, int kind):
        key_check_kind(kind)
        self.encode = encode
        self.kind = kind

    def __call__(self, resource):
        """Return the KeyOfKind of the resource."""
        key = self.encode(resource)
        if type(key) is not bytes:
            raise TypeError("a key that is not bytes")
        return self.of_key(key)

    cdef KeyOfKind of_key(self, bytes key):
        cdef KeyOfKind made = KeyOfKind.__new__(KeyOfKind)
        key_set(made, key, self.kind, 0)
        return made
