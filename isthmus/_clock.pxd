# C declarations for _clock.py, read by the compiler only, as protocol/_records.pxd is.

cdef extern from *:
    """
    #include <time.h>

    static inline long long isthmus_wall_ms(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
    }
    """
    long long _wall_ms "isthmus_wall_ms" () noexcept nogil
