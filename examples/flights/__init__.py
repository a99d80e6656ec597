"""The flights that left New York in 2013: three airports, one aggregate."""
