/* The numbers of exp(x) that the CPU loops and the sampling twins share. */
#ifndef PENSTOCK_EXP_H
#define PENSTOCK_EXP_H

/* exp(x) for |x| below 87 within 1 ulp. x = n ln 2 + r, |r| <= ln 2 / 2, and e^r = 1 +
 * r + r^2 q(r) where q is the minimax polynomial of degree 4, found by Remez's
 * exchange for the relative error, which is 3.1e-9. EXP_ROUND is 1.5 * 2^23: adding it
 * rounds to an integer, which then stands in the low bits. ln 2 is split in two so
 * that n * EXP_LN2_HIGH is exact. */
#define EXP_LOG2E    1.44269504f
#define EXP_ROUND    12582912.0f
#define EXP_LN2_HIGH 0.693359375f
#define EXP_LN2_LOW  -2.12194440e-4f
#define EXP_C2       0x1.fffffcp-2f
#define EXP_C3       0x1.555492p-3f
#define EXP_C4       0x1.5558f2p-5f
#define EXP_C5       0x1.1239e2p-7f
#define EXP_C6       0x1.6a2434p-10f
#define EXP_MIN      -87.0f
#define EXP_MAX      88.0f

/* Weights of sampling are integers, so that their sum has no order: 2^40 exp(..),
 * truncated. */
#define MASS_ONE 0x1p40f

#endif
