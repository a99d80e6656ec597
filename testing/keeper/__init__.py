"""The keeper: a process that runs what a test started, and ends all of it when the test's process ends, however."""
