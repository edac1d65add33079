/* Picks the inner loops for this processor. */
#include "kernels/vec.h"

#if VEC_HAVE_X86
static bool have_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool have_avx512(void)
{
    return have_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512dq");
}

const struct vec_ops *const *vec_list(void)
{
    static const struct vec_ops *const lists[3][4] = {
        {&vec_base},
        {&vec_avx2, &vec_base},
        {&vec_avx512, &vec_avx2, &vec_base},
    };
    return lists[have_avx512() ? 2 : have_avx2()];
}
#else
const struct vec_ops *const *vec_list(void)
{
    static const struct vec_ops *const list[] = {&vec_base, NULL};
    return list;
}
#endif

const struct vec_ops *vec_select(void)
{
    return vec_list()[0];
}
