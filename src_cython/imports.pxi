# What the files of the core use of C, CPython and POSIX, but for system.pxd.

cimport cython

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.contextvars cimport PyContext_Enter, PyContext_Exit
from cpython.exc cimport PyErr_CheckSignals, PyErr_WarnEx
from cpython.object cimport PyObject
from cpython.pythread cimport (
    NOWAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_get_thread_ident, PyThread_release_lock, PyThread_type_lock,
)
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.weakref cimport PyWeakref_NewRef
from libc.errno cimport (
    EAGAIN, EBADF, ECONNREFUSED, EINPROGRESS, EINTR, ENAMETOOLONG, ENOMEM, errno,
)
from libc.stdint cimport int32_t, int64_t, int8_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strerror
from posix.fcntl cimport F_DUPFD_CLOEXEC, fcntl
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport close, getpid

cdef extern from "Python.h":
    bint PyGC_Disable()      # whether it was on
    bint PyGC_Enable()
    void Py_SET_SIZE(list, Py_ssize_t)
    int PyList_SetSlice(list, Py_ssize_t, Py_ssize_t, PyObject *) except -1

cdef extern from "string.h" nogil:
    void *memmem(const void *, size_t, const void *, size_t)

cdef extern from * nogil:
    """
    /* Inline: without an instruction for it, which not every x86-64 has, the builtin
       is a call. (H. S. Warren, Hacker's Delight, 5-1) */
    static inline int bit_count(unsigned long long set)
    {
        set -= set >> 1 & 0x5555555555555555;
        set = (set & 0x3333333333333333) + (set >> 2 & 0x3333333333333333);
        return ((set + (set >> 4)) & 0x0F0F0F0F0F0F0F0F) * 0x0101010101010101 >> 56;
    }
    """
    int bit_count(unsigned long long)
