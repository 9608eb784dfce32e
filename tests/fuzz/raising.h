/* Included in the C file of the extension, before the functions of its own: at each call
   that may run Python, a hook is called, which may raise, or call the extension again. So one build
   has what a signal handler, a finalizer or a lack of memory does, at the k-th of these
   places, for every k. Its variables are set and read by ctypes (raising.py).

   `raising_class` is a set of
     1  calls in which CPython looks for signals, and calls of Python's functions
     2  the same, and the hook is called after the call has had its effect
     4  new objects: a lack of memory; before 3.12, a collection and its finalizers,
        but for passes, which switch that off
     8  other allocations, and calls of C functions: a lack of memory */

#define EXPORT __attribute__((visibility("default")))

EXPORT PyObject *raising_hook;
EXPORT unsigned long raising_thread;
EXPORT long raising_left;
EXPORT int raising_class;
EXPORT const char *raising_function = "";
EXPORT int raising_line;
EXPORT const char *raising_in_a_pass = ""; /* where Python would have been run in one */

static int raising_here(int kind, const char *function, int line)
{
    PyObject *hook = raising_hook, *given;

    if (!PyGC_IsEnabled()) {
        if (kind < 4)
            raising_in_a_pass = function;
        else if (!(raising_class & 8))
            return 0;
    }
    if (!(raising_class & kind) || hook == NULL || PyErr_Occurred() ||
        raising_thread != PyThread_get_thread_ident() || --raising_left != 0)
        return 0;
    raising_function = function;
    raising_line = line;
    given = PyObject_CallNoArgs(hook);
    Py_XDECREF(given);
    return given == NULL;
}

/* Whether Python code runs in a call, and so a signal handler: in a function of Python,
   or a method that is one. (A call of a coroutine or a generator begins none.) */
static int raising_is_python(PyObject *called)
{
    int later = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;

    if (called != NULL && PyMethod_Check(called))
        called = PyMethod_GET_FUNCTION(called);
    return called != NULL && PyFunction_Check(called) &&
           !(((PyCodeObject *)PyFunction_GET_CODE(called))->co_flags & later);
}

static PyObject *raising_after(PyObject *given, const char *function, int line)
{
    if (given != NULL && raising_here(2, function, line))
        Py_CLEAR(given);
    return given;
}

#define RAISING_OBJECT(kind, call) \
    (raising_here(kind, __func__, __LINE__) ? NULL : (call))
#define RAISING_INT(kind, call) (raising_here(kind, __func__, __LINE__) ? -1 : (call))
#define RAISING_NEW(new, ...) RAISING_OBJECT(4, new(__VA_ARGS__))

static PyObject *raising_call(PyObject *f, PyObject *const *args, size_t n,
                              const char *function, int line)
{
    int is_python = raising_is_python(f);

    if (raising_here(is_python ? 1 : PyType_Check(f) ? 4 : 8, function, line))
        return NULL;
    f = __Pyx_PyObject_FastCallDict(f, args, n, NULL);
    return is_python ? raising_after(f, function, line) : f;
}

static PyObject *raising_method(PyObject *name, PyObject *const *args, size_t n,
                                const char *function, int line)
{
    PyObject *given;
    int is_python = raising_is_python(_PyType_Lookup(Py_TYPE(args[0]), name));

    if (raising_here(is_python ? 1 : 8, function, line))
        return NULL;
    given = PyObject_VectorcallMethod(name, args, n, NULL);
    return is_python ? raising_after(given, function, line) : given;
}

#undef __Pyx_PyObject_FastCall
#undef __Pyx_PyObject_FastCallMethod
#define __Pyx_PyObject_FastCall(f, args, n) \
    raising_call(f, args, (size_t)(n), __func__, __LINE__)
#define __Pyx_PyObject_FastCallMethod(name, args, n) \
    raising_method(name, args, n, __func__, __LINE__)


/* A generator looks for signals when it goes on. */
#define __Pyx_PyIter_Next2(...) RAISING_OBJECT(1, (__Pyx_PyIter_Next2)(__VA_ARGS__))

/* Texts: of a str that is one CPython looks for no signals. */
#undef __Pyx_PyObject_Unicode
#undef __Pyx_PyObject_FormatSimple
#define __Pyx_PyObject_Unicode(o) \
    (PyUnicode_CheckExact(o) ? __Pyx_NewRef(o) : PyObject_Str(o))
#define __Pyx_PyObject_FormatSimple(o, format) \
    (PyUnicode_CheckExact(o) ? __Pyx_NewRef(o) \
     : RAISING_OBJECT(1, PyObject_Format(o, format)))
#define PyObject_Str(...) RAISING_OBJECT(1, (PyObject_Str)(__VA_ARGS__))
#define PyObject_Repr(...) RAISING_OBJECT(1, (PyObject_Repr)(__VA_ARGS__))
#define PyNumber_Remainder(...) RAISING_OBJECT(1, (PyNumber_Remainder)(__VA_ARGS__))
#define PyErr_CheckSignals() RAISING_INT(1, (PyErr_CheckSignals)())

#undef PyList_Append
#define __Pyx_PyList_Append(...) RAISING_INT(8, (__Pyx_PyList_Append)(__VA_ARGS__))
#define PyList_New(...) RAISING_OBJECT(4, (PyList_New)(__VA_ARGS__))
#define PyList_Insert(...) RAISING_INT(8, (PyList_Insert)(__VA_ARGS__))
#define PyTuple_New(...) RAISING_OBJECT(4, (PyTuple_New)(__VA_ARGS__))
#define PyTuple_Pack(...) RAISING_OBJECT(4, (PyTuple_Pack)(__VA_ARGS__))
#define PyDict_New() RAISING_OBJECT(4, (PyDict_New)())
#define PyDict_SetItem(...) RAISING_INT(8, (PyDict_SetItem)(__VA_ARGS__))
#define PyBytes_FromStringAndSize(...) \
    RAISING_OBJECT(8, (PyBytes_FromStringAndSize)(__VA_ARGS__))
