"""A pretend GPU: what goes wrong on CUDA is found where there is none.

Within `runtime.pretend_gpu()`, torch has one CUDA device. Its tensors say `cuda:0` and are computed
by the CPU. What it finds: tensors on the wrong device, dtypes that autocast of CUDA does not bring
together, arguments that the kernels of attention refuse, and every place where the host waits for
the device. What it cannot: which kernel is chosen, its numbers and speed, streams, and several
processes.

`build.load_hooks()` comes first, in a process of its own, before torch is imported.
"""
