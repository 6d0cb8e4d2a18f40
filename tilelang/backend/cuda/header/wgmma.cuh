// Warpgroup products: descriptors of operands in shared memory, groups, waiting.
#pragma once
#include <tilelang/types.cuh>

namespace tl {

// The descriptor of a matrix (PTX ISA, "Matrix descriptor"): byte strides, and the swizzling mode in the top bits.
template <int Leading, int Stride, int Mode> TL_DEVICE uint64_t matrix(const void* p) {
  constexpr uint64_t shape = (uint64_t(Leading) >> 4) << 16 | (uint64_t(Stride) >> 4) << 32 | uint64_t(Mode) << 62;
  return shape | (((uint32_t)__cvta_generic_to_shared(p) & 0x3ffffu) >> 4);
}
TL_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
TL_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int Groups> TL_DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(Groups) : "memory"); }

// Keeps the compiler from moving uses of registers across this point: products write them behind its back.
template <int Count> TL_DEVICE void settle(float* r) {
#pragma unroll
  for (int k = 0; k < Count; ++k) asm volatile("" : "+f"(r[k]) : : "memory");
}
template <int Count> TL_DEVICE void settle(int32_t* r) {
#pragma unroll
  for (int k = 0; k < Count; ++k) asm volatile("" : "+r"(r[k]) : : "memory");
}

// Registers of each thread of this warpgroup from here on: given back, or taken once others gave them back.
template <int Count> TL_DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(Count)); }
template <int Count> TL_DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(Count)); }

}  // namespace tl
