"""Who sees whom, as data of a pass: masks, segments, kernels, the pool of keys and values."""
