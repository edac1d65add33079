/* What the twins of sampling must agree on to the bit. Who includes this defines
 * SAMPLE_FN, how a function is declared (static inline, on the device or not).
 *
 * Order of the candidates: logit from high to low, equal logits from low id to high.
 * Every filter keeps a prefix of that order, which is one struct sample_cut. Weights
 * are integers (MASS_ONE), so sums do not depend on the order of adding. The draw
 * walks the candidates that are left by id: the first whose cumulated weight is above
 * floor(random * total / 2^64) wins. */
#ifndef PENSTOCK_SAMPLE_H
#define PENSTOCK_SAMPLE_H

#include <stdint.h>
#include <string.h>

/* Kept: all with a key above, and the first `ties` ids of those with this key. */
struct sample_cut {
    uint32_t key;
    int64_t ties;
};

/* A key that orders like the logit; both zeros have the same. */
SAMPLE_FN uint32_t sample_key(float x)
{
    uint32_t bits;

    x = x == 0.0f ? 0.0f : x;
    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

SAMPLE_FN float sample_penalise(float x, float penalty)
{
    return x > 0.0f ? x / penalty : x * penalty;
}

/* 64 random bits: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers:
 * as easy as 1, 2, 3; 2011) with the seed as key and (stream, pos, 0, 0) as counter;
 * the first two words. */
SAMPLE_FN uint64_t sample_random(uint64_t seed, uint32_t stream, uint32_t pos)
{
    uint32_t c[4] = {stream, pos, 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a};
        memcpy(c, next, sizeof(c));
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return (uint64_t)c[1] << 32 | c[0];
}

#endif
