// Asynchronous copies are made at once.
#pragma once
#include <tilelang/types.cuh>

namespace tl {

static inline void named_barrier(int id) { host_block_barrier(id, 0); }
static inline void named_barrier(int id, int threads) { host_block_barrier(id, threads); }
template <int Bytes> static void cp_async(void* to, const void* from, bool inside = true) {
  if (inside) memcpy(to, from, Bytes);
  else memset(to, 0, Bytes);
}
template <class T, int Count> static void copy_now(T* to, const T* from, bool inside = true) {
  cp_async<Count * sizeof(T)>(to, from, inside);
}
static inline void cp_async_commit() {}
static inline void launch_dependents() {}
static inline void wait_for_kernels_before() {}
template <int Groups> static void cp_async_wait() {}

}  // namespace tl
