// Instructions that C++ has no words for, one function each, named as in the PTX ISA.
#pragma once

namespace tl {
namespace ptx {

static __device__ __forceinline__ uint16_t cvt_rn_f16_f32(float x) {
  uint16_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
static __device__ __forceinline__ float cvt_f32_f16(uint16_t x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
static __device__ __forceinline__ uint16_t cvt_rn_bf16_f32(float x) {
  uint16_t r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}

}  // namespace ptx
}  // namespace tl
