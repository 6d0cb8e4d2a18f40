// Warpgroup products: descriptors of operands in shared memory, groups, waiting.
#pragma once
#include <tilelang/types.cuh>

namespace tl {

// Where a block's dynamic shared memory begins, in units of 16 bytes: behind the 1 KB of the system's, without static arrays. As a constant
// it disappears in descriptors; from the symbol the assembler computes every address anew inside of loops.
constexpr uint32_t SHARED_START = 1024 / 16;
TL_DEVICE uint32_t shared_units(const void* p) { return ((uint32_t)__cvta_generic_to_shared(p) & 0x3ffffu) >> 4; }
TL_DEVICE void check_shared_start(const void* smem) {
  if (shared_units(smem) != SHARED_START) __trap();
}
// The number of this thread's warpgroup, as the assembler keeps it: once for the warp.
TL_DEVICE int warpgroup_of(int thread) { return __shfl_sync(0xffffffffu, thread / 128, 0); }

// The descriptor of a matrix (PTX ISA, "Matrix descriptor"): address in units of 16 bytes, byte strides, the swizzling mode in the top bits.
template <int Leading, int Stride, int Mode> TL_DEVICE uint64_t matrix(uint32_t at) {
  constexpr uint32_t high = uint32_t(Stride) >> 4 | uint32_t(Mode) << 30;
  return (uint64_t)high << 32 | ((uint32_t(Leading) >> 4 << 16) + at);
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
