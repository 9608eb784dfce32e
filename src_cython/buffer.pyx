# Bytes to be sent: [start, end) of one growing allocation; and numbers as text.


cdef struct Buffer:
    char *data
    size_t start
    size_t end
    size_t capacity


cdef enum:
    BUFFER_FIRST_CAPACITY = 1024      # holds one command of the usual size
    BUFFER_KEPT_CAPACITY = 65536      # a larger one is given back once it is empty


cdef inline size_t buffer_length(Buffer *self) noexcept nogil:
    return self.end - self.start


cdef int buffer_reserve(Buffer *self, size_t size) noexcept nogil:
    cdef size_t capacity
    cdef char *grown
    if self.end + size <= self.capacity:
        return 0
    if self.start > 0 and self.start >= buffer_length(self):  # it is never emptied
        memmove(self.data, self.data + self.start, buffer_length(self))
        self.end -= self.start
        self.start = 0
        if self.end + size <= self.capacity:
            return 0
    capacity = max(self.capacity * 2, <size_t>BUFFER_FIRST_CAPACITY)
    while capacity < self.end + size:
        capacity *= 2
    grown = <char *>realloc(self.data, capacity)
    if grown == NULL:
        return -ENOMEM
    self.data = grown
    self.capacity = capacity
    return 0


cdef inline void buffer_put(Buffer *self, const char *data, size_t size) noexcept nogil:
    # Into space that was reserved.
    memcpy(self.data + self.end, data, size)
    self.end += size


cdef int buffer_append(Buffer *self, const char *data, size_t size) noexcept nogil:
    cdef int error = buffer_reserve(self, size)
    if error == 0:
        buffer_put(self, data, size)
    return error


cdef void buffer_consume(Buffer *self, size_t size) noexcept nogil:
    self.start += size
    if self.start == self.end:
        self.start = self.end = 0
        if self.capacity > BUFFER_KEPT_CAPACITY:
            buffer_free(self)


cdef void buffer_free(Buffer *self) noexcept nogil:
    free(self.data)
    memset(self, 0, sizeof(Buffer))


cdef int decimal_digits(uint64_t value, char *text) noexcept nogil:
    # Writes value's digits at text (20 at the most) and returns how many.
    cdef char reversed_digits[20]
    cdef int count = 0, i
    while True:
        reversed_digits[count] = <char>(48 + <int>(value % 10))   # '0'
        count += 1
        value //= 10
        if value == 0:
            break
    for i in range(count):
        text[i] = reversed_digits[count - 1 - i]
    return count


cdef bytes decimal_bytes(uint64_t value):
    # As b"%d" % value; but CPython runs signal handlers while it formats an integer.
    cdef char text[20]
    return PyBytes_FromStringAndSize(text, decimal_digits(value, text))
