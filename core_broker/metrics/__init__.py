"""What a broker tells about itself over HTTP: metrics in Prometheus' text format, liveness and readiness.

Counters are plain integers that live with what they count and are read when somebody asks. Nothing here is loaded
unless metrics.listener is set.
"""
