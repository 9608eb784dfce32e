# Types for the compiled simulator, see compiled.py.

cimport cython


@cython.locals(first=cython.Py_ssize_t)
cpdef tuple keys_and_arguments(list words)
