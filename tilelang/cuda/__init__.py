"""The newer home of the helpers for hand-written CUDA kernels: `tilelang.cuda.intrinsics`."""
