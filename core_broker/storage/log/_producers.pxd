# C declarations for _producers.py, read by the compiler only, as protocol/_records.pxd is.

cdef long long SEQUENCE_MASK
cdef int _BATCHES_KEPT


cdef class ProducerEntry:
    cdef public long long epoch
    cdef public long long timestamp
    cdef public long long coordinator_epoch
    cdef public long long transaction_start
    cdef readonly int kept
    cdef long long _first_sequences[5]
    cdef long long _last_sequences[5]
    cdef long long _first_offsets[5]
    cdef long long _last_offsets[5]
    cdef long long _timestamps[5]

    cpdef int take(self, long long base_sequence, long long base_offset, long long last_offset, long long timestamp) except? -1
    cdef long long next_sequence(self) noexcept


cdef class ProducerStates:
    cdef public dict entries
    cdef public dict open_transactions
    cdef public bint complete
