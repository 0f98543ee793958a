import os

# One thread, as in a measured run: BLAS helper threads spin and gain nothing here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
