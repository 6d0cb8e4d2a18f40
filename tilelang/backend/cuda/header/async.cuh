// Barriers and asynchronous copies.
#pragma once
#include <tilelang/types.cuh>

namespace tl {

TL_DEVICE uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// ---- barriers of a part of the block, and of the grid
TL_DEVICE void named_barrier(int id) { asm volatile("bar.sync %0;" : : "r"(id) : "memory"); }
TL_DEVICE void named_barrier(int id, int threads) { asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory"); }

// The top bit of *state flips when all blocks have arrived; block 0 adds what the others leave to it. All blocks must be resident.
TL_DEVICE void sync_grid(uint32_t* state) {
  __syncthreads();
  if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
    uint32_t blocks = gridDim.x * gridDim.y * gridDim.z;
    uint32_t part = blockIdx.x + blockIdx.y + blockIdx.z == 0 ? 0x80000000u - (blocks - 1u) : 1u;
    __threadfence();
    uint32_t before = atomicAdd(state, part);
    while (((before ^ *reinterpret_cast<volatile uint32_t*>(state)) & 0x80000000u) == 0u) {
    }
    __threadfence();
  }
  __syncthreads();
}

// ---- dependent launches (PTX ISA, griddepcontrol): the next kernel of the stream may begin; until those before this one have ended and
// what they wrote is visible. Without such a launch both do nothing.
TL_DEVICE void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}
TL_DEVICE void wait_for_kernels_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

// ---- mbarriers
TL_DEVICE void mbarrier_init(uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(shared_address(barrier)), "r"(count) : "memory");
}
TL_DEVICE void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" : : "r"(shared_address(barrier)) : "memory");
}

// ---- clusters (sm_90). An arrival at the barrier at this place of another block; plain, because with .release.cluster it becomes a fence
// of the whole device (what it orders, reads of shared memory, is complete).
TL_DEVICE void mbarrier_arrive(uint64_t* barrier, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(barrier)), "r"(rank));
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" : : "r"(there) : "memory");
}
TL_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory"); }
// Orders no memory but mbarriers whose initialisation was fenced.
TL_DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" : : : "memory"); }
TL_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory"); }

TL_DEVICE bool mbarrier_test(uint64_t* barrier, int parity) {
  uint32_t done;
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
#else
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
#endif
  return done != 0u;
}
TL_DEVICE void mbarrier_wait(uint64_t* barrier, int parity) {
  while (!mbarrier_test(barrier, parity)) {
  }
}

// ---- cp.async: 4, 8 or 16 bytes from global to shared memory; rows of tiles are longer than a sector, so that L2 may fetch whole lines
template <int Bytes> TL_DEVICE void cp_async(void* to, const void* from) {
  if (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" : : "r"(shared_address(to)), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" : : "r"(shared_address(to)), "l"(from), "n"(Bytes) : "memory");
  }
}
// Zeros where `inside` is false; nothing is read then.
template <int Bytes> TL_DEVICE void cp_async(void* to, const void* from, bool inside) {
  int size = inside ? Bytes : 0;
  if (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" : : "r"(shared_address(to)), "l"(from), "r"(size) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" : : "r"(shared_address(to)), "l"(from), "n"(Bytes), "r"(size) : "memory");
  }
}
// The same at once, for addresses that are only aligned to the element.
template <class T, int Count> TL_DEVICE void copy_now(T* to, const T* from, bool inside = true) {
#pragma unroll
  for (int k = 0; k < Count; ++k) to[k] = inside ? from[k] : T();
}
TL_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int Groups> TL_DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" : : "n"(Groups) : "memory"); }

}  // namespace tl
