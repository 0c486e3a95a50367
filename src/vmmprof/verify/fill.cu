// SPDX-License-Identifier: MIT
// The kernel behind verify/pattern.py: word i of the memory becomes splitmix64 of
// i >> shift; with a shift, its low half is repeated, so that 256-byte blocks compress.
// fill.ptx is generated from this file; tests/verify/test_verify_fill_kernel.py says how.

extern "C" __global__ void vmmprof_fill(unsigned long long *words, unsigned long long count,
                                        unsigned long long seed, unsigned int shift)
{
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
         i < count; i += stride) {
        unsigned long long z = (i >> shift) * 0x9E3779B97F4A7C15ull + seed;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        if (shift != 0)
            z = (z & 0xFFFFFFFFull) * 0x100000001ull;
        words[i] = z;
    }
}
