# A round or a batch, for a driver that runs both: `work` is either of them. (A common
# base class would cost both their freelist: Cython gives none to subtypes.)


cdef int work_check(object work) except -1:
    if type(work) is Round:
        if (<Round>work).terms is None:
            raise TypeError("a Round that was not initialised")
    elif type(work) is not Batch:
        raise TypeError("a Round or a Batch")
    return 0


cdef bint work_is_submitted(object work) noexcept:
    if type(work) is Batch:
        return (<Batch>work).is_submitted
    return (<Round>work).is_submitted


cdef bint work_is_finished(object work) noexcept:
    if type(work) is Batch:
        return (<Batch>work).is_finished
    return (<Round>work).is_finished


cdef bint work_is_release(object work) noexcept:
    # Releases are sent although the engine is closed.
    if type(work) is Round:
        return round_is_release(<Round>work)
    rounds = (<Batch>work).rounds
    return len(rounds) > 0 and round_is_release(<Round>rounds[0])


cdef bint work_is_unreachable(object work) noexcept:
    cdef Round round = (<Batch>work).failure if type(work) is Batch else work
    return round is not None and round.verdict_code == VERDICT_UNREACHABLE


cdef int64_t work_timeout_ns(object work) noexcept:
    if type(work) is Round:
        return (<Round>work).terms.timeout_ns
    rounds = (<Batch>work).rounds
    return (<Round>rounds[0]).terms.timeout_ns if rounds else 0


cdef void work_set_waiter(object work, object waiter) noexcept:
    if type(work) is Batch:
        (<Batch>work).waiter = waiter
    else:
        (<Round>work).waiter = waiter


cdef bint work_has_validity(object work) noexcept:
    # Whether a validity has to be checked, which costs a reading of the clock.
    return type(work) is Batch or (
        operation_is((<Round>work).operation_code, OPERATION_GIVES_TTL)
    )


cdef bint work_expired_before_return(object work, int64_t now_ns) noexcept:
    if type(work) is Batch:
        return batch_expired_before_return(<Batch>work, now_ns)
    return round_expired_before_return(<Round>work, now_ns)
