# What a task awaits, in C: an object with one method that returns how it goes on.
#
# `await` asks an object of another type than Python's own coroutines by `__next__`, and
# learns its value from a StopIteration. Raised in Cython this makes an exception, a
# traceback and a frame for it, some 2,500 instructions. The slot am_send returns the
# value itself (CPython 3.10, 3.11); later versions ask by tp_iternext where None is
# sent, and a StopIteration without a traceback is enough.

cdef extern from "Python.h":
    ctypedef int PySendResult      # an enum
    PySendResult PYGEN_RETURN
    PySendResult PYGEN_NEXT
    ctypedef struct PyAsyncMethods:
        void *am_send
    ctypedef struct AwaitingType "PyTypeObject":
        PyAsyncMethods *tp_as_async
        void *tp_iternext
    void PyErr_SetObject(object kind, object value)
    void PyType_Modified(AwaitingType *kind)


cdef class Awaited:
    """The base of what a task awaits."""

    cdef PySendResult step(self, PyObject **given) except -1:
        # Go on; give PYGEN_NEXT with the future to wait for, or PYGEN_RETURN with the
        # value.
        raise NotImplementedError

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        cdef PyObject *given = NULL
        cdef PySendResult status = self.step(&given)
        value = <object>given
        Py_XDECREF(given)
        if status == PYGEN_RETURN:
            raise StopIteration(value)
        return value


cdef inline void awaiting_give(PyObject **given, object value) noexcept:
    Py_INCREF(value)
    given[0] = <PyObject *>value


cdef PySendResult awaiting_send(
    PyObject *self, PyObject *_value, PyObject **given
) except -1:
    given[0] = NULL
    return (<Awaited>self).step(given)


cdef PyObject *awaiting_next(PyObject *self) except? NULL:
    cdef PyObject *given = NULL
    if (<Awaited>self).step(&given) == PYGEN_NEXT:
        return given
    if given != <PyObject *>None:      # nothing raised: None
        PyErr_SetObject(StopIteration, StopIteration(<object>given))
    Py_XDECREF(given)
    return NULL


cdef int awaiting_set_slots(type kind) except -1:
    # Of a type of this module, before it is used. Each has an `__await__`, so there is
    # a tp_as_async.
    cdef AwaitingType *slots = <AwaitingType *><PyObject *>kind
    if slots.tp_as_async == NULL:
        raise SystemError("a type without __await__")
    slots.tp_as_async.am_send = <void *>awaiting_send
    slots.tp_iternext = <void *>awaiting_next
    PyType_Modified(slots)
    return 0
