"""llama.cpp in the process that is observed: one file for each library that brings it."""
