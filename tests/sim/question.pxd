# Types for the compiled simulator, see compiled.py.

cimport cython


cpdef int vote_of(int operation, bytes reply)

@cython.locals(first=cython.Py_ssize_t)
cpdef question_of(list words)
