dnl Macros of penstock's configure.ac, each named after what it finds or decides.

dnl PENSTOCK_BUILD_KIND: --enable-sanitizers, --enable-tsan, --enable-fuzzers, at most one of them.
dnl Sets penstock_kind, penstock_optimise, KIND_CFLAGS, FUZZER_LDFLAGS and the conditional FUZZERS.
AC_DEFUN([PENSTOCK_BUILD_KIND], [
penstock_kind=release penstock_optimise=-O3 KIND_CFLAGS= FUZZER_LDFLAGS=
AC_ARG_ENABLE([sanitizers], [AS_HELP_STRING([--enable-sanitizers],
    [build with AddressSanitizer and UndefinedBehaviorSanitizer])])
AC_ARG_ENABLE([tsan], [AS_HELP_STRING([--enable-tsan], [build with ThreadSanitizer])])
AC_ARG_ENABLE([fuzzers], [AS_HELP_STRING([--enable-fuzzers],
    [build the libFuzzer targets in tests/fuzz (needs CC=clang)])])
penstock_address="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
penstock_address="$penstock_address -fno-omit-frame-pointer"
AS_IF([test "x$enable_sanitizers" = xyes],
    [penstock_kind=sanitizers KIND_CFLAGS=$penstock_address])
AS_IF([test "x$enable_tsan" = xyes],
    [AS_IF([test $penstock_kind != release],
        [AC_MSG_ERROR([--enable-tsan and --enable-sanitizers exclude each other])])
     penstock_kind=tsan KIND_CFLAGS="-fsanitize=thread"])
AS_IF([test "x$enable_fuzzers" = xyes],
    [AS_IF([test $penstock_kind != release],
        [AC_MSG_ERROR([--enable-fuzzers brings its own sanitizers: give it alone])])
     penstock_kind=fuzzers KIND_CFLAGS="$penstock_address -fsanitize=fuzzer-no-link"
     FUZZER_LDFLAGS="-fsanitize=fuzzer"])
AS_IF([test $penstock_kind != release], [penstock_optimise=-O1])
AM_CONDITIONAL([FUZZERS], [test $penstock_kind = fuzzers])
AC_SUBST([KIND_CFLAGS])
AC_SUBST([FUZZER_LDFLAGS])
])

dnl PENSTOCK_CUDA: --with-cuda[=DIR], --without-cuda, --with-cuda-arch=LIST.
dnl Sets have_cuda, cuda_dir, NVCC, CUDA_ARCH_FLAGS, CUDA_CPPFLAGS, CUDA_LIBS, CUDA_RPATH.
dnl libcuda itself is never linked: it is absent on machines without a driver.
AC_DEFUN([PENSTOCK_CUDA], [
AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR],
    [the CUDA toolkit @<:@that of the nvcc on PATH, or /usr/local/cuda@:>@; --without-cuda
     builds CPU lanes alone])], [], [with_cuda=check])
AC_ARG_WITH([cuda-arch], [AS_HELP_STRING([--with-cuda-arch=LIST],
    [compute capabilities to compile for, and PTX of the last @<:@80,90@:>@])],
    [], [with_cuda_arch=80,90])
have_cuda=no cuda_dir=no cuda_summary=no
AS_IF([test "x$with_cuda" != xno], [
    cuda_path=$PATH$PATH_SEPARATOR/usr/local/cuda/bin
    AS_CASE([$with_cuda], [/*], [cuda_path=$with_cuda/bin])
    AC_PATH_PROG([NVCC], [nvcc], [], [$cuda_path])
    AS_IF([test -n "$NVCC"], [have_cuda=yes],
        [test "x$with_cuda" != xcheck],
        [AC_MSG_ERROR([no nvcc in $cuda_path: give --with-cuda=DIR or --without-cuda])])])
AS_IF([test $have_cuda = yes], [
    cuda_dir=$(readlink -f "$NVCC" | sed 's,/bin/nvcc$,,')
    AS_IF([test -f "$cuda_dir/include/cuda_runtime.h"],
        [CUDA_CPPFLAGS="-isystem $cuda_dir/include"
         cuda_lib=$cuda_dir/lib64
         CUDA_LIBS="-L$cuda_lib"
         CUDA_RPATH="-R$cuda_lib"],
        [cuda_dir=/usr CUDA_CPPFLAGS= CUDA_LIBS= CUDA_RPATH=])
    CUDA_LIBS="$CUDA_LIBS -lcublasLt -lcublas -lcudart -lstdc++"
    PENSTOCK_CUDA_ARCH
    AC_DEFINE([HAVE_CUDA], [1], [Define to 1 if CUDA lanes are built in.])
    cuda_summary="$cuda_dir, architectures $with_cuda_arch"])
AM_CONDITIONAL([HAVE_CUDA], [test $have_cuda = yes])
AC_SUBST([CUDA_CPPFLAGS])
AC_SUBST([CUDA_LIBS])
AC_SUBST([CUDA_RPATH])
AC_SUBST([with_cuda_arch])
AS_IF([test $have_cuda = yes], [CUDA_CONFIGURE="--with-cuda=$cuda_dir"],
    [CUDA_CONFIGURE=--without-cuda])
AC_SUBST([CUDA_CONFIGURE])
])

dnl PENSTOCK_CUDA_ARCH: CUDA_ARCH_FLAGS from with_cuda_arch; tries that nvcc accepts them.
AC_DEFUN([PENSTOCK_CUDA_ARCH], [
CUDA_ARCH_FLAGS=
for arch in $(AS_ECHO(["$with_cuda_arch"]) | tr ',' ' '); do
    AS_VAR_APPEND([CUDA_ARCH_FLAGS], [" -gencode arch=compute_$arch,code=sm_$arch"])
done
AS_VAR_APPEND([CUDA_ARCH_FLAGS], [" -gencode arch=compute_$arch,code=compute_$arch"])
AC_MSG_CHECKING([whether nvcc compiles for $with_cuda_arch])
AS_ECHO(["__global__ void f(void) {}"]) >conftest.cu
AS_IF([$NVCC $CUDA_ARCH_FLAGS -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([$NVCC fails with$CUDA_ARCH_FLAGS: see config.log, choose --with-cuda-arch])])
rm -f conftest.cu conftest.o
AC_SUBST([CUDA_ARCH_FLAGS])
])

dnl PENSTOCK_NCCL: have_nccl, NCCL_LIBS. NCCL lies in the toolkit or where the system keeps it.
AC_DEFUN([PENSTOCK_NCCL], [
have_nccl=no
AS_IF([test $have_cuda = yes], [
    penstock_cppflags=$CPPFLAGS penstock_libs=$LIBS
    CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS" LIBS="$CUDA_LIBS $LIBS"
    AC_CHECK_HEADER([nccl.h], [AC_CHECK_LIB([nccl], [ncclCommInitRankConfig], [have_nccl=yes])])
    CPPFLAGS=$penstock_cppflags LIBS=$penstock_libs])
AS_IF([test $have_nccl = yes], [
    NCCL_LIBS=-lnccl
    AC_DEFINE([HAVE_NCCL], [1], [Define to 1 if NCCL links are built in.])])
AM_CONDITIONAL([HAVE_NCCL], [test $have_nccl = yes])
AC_SUBST([NCCL_LIBS])
])

dnl PENSTOCK_STARPU: --with-starpu=PREFIX. StarPU >= 1.4, CUDA-enabled where CUDA lanes are.
AC_DEFUN([PENSTOCK_STARPU], [
AC_ARG_WITH([starpu], [AS_HELP_STRING([--with-starpu=PREFIX],
    [where StarPU >= 1.4 is installed @<:@where pkg-config finds it@:>@])],
    [], [with_starpu=])
STARPU_CONFIGURE=
AS_IF([test -n "$with_starpu"], [
    STARPU_CONFIGURE="--with-starpu=$with_starpu"
    PKG_CONFIG_PATH="$with_starpu/lib/pkgconfig:$with_starpu/share/pkgconfig:$PKG_CONFIG_PATH"
    export PKG_CONFIG_PATH])
PKG_CHECK_MODULES([STARPU], [starpu-1.4 >= 1.4], [], [
    AC_MSG_ERROR([no StarPU >= 1.4 found by pkg-config: run ./bootstrap build, which builds it,
or give --with-starpu=PREFIX])])
dnl Its headers draw in those of CUDA, which do not compile without warnings.
STARPU_CFLAGS=$(AS_ECHO(["$STARPU_CFLAGS"]) | sed 's/-I */-isystem /g')
starpu_libdir=$($PKG_CONFIG --variable=libdir starpu-1.4)
AS_CASE([$starpu_libdir], [/usr/lib*], [], [STARPU_RPATH="-R$starpu_libdir"])
starpu_summary="$($PKG_CONFIG --modversion starpu-1.4) in $($PKG_CONFIG --variable=prefix starpu-1.4)"
penstock_cppflags=$CPPFLAGS
CPPFLAGS="$CPPFLAGS $STARPU_CFLAGS"
AC_CHECK_DECL([STARPU_USE_CUDA], [starpu_cuda=yes], [starpu_cuda=no], [[#include <starpu_config.h>]])
CPPFLAGS=$penstock_cppflags
AS_IF([test $have_cuda:$starpu_cuda = yes:no],
    [AC_MSG_ERROR([the StarPU found ($starpu_summary) has no CUDA: give --with-starpu=PREFIX of
one that has, or --without-cuda])])
AC_SUBST([STARPU_RPATH])
AC_SUBST([STARPU_CONFIGURE])
])

dnl PENSTOCK_BLAS: OpenBLAS's cblas.h. The library itself is loaded at run time, see kernels/blas.h.
AC_DEFUN([PENSTOCK_BLAS], [
PKG_CHECK_MODULES([BLAS], [openblas], [], [
    AC_CHECK_HEADER([cblas.h], [], [AC_MSG_ERROR([no cblas.h: install OpenBLAS's headers])])])
AC_SEARCH_LIBS([dlopen], [dl])
])

dnl PENSTOCK_CMOCKA: the unit tests need it; without it make check says so and skips them.
AC_DEFUN([PENSTOCK_CMOCKA], [
PKG_CHECK_MODULES([CMOCKA], [cmocka >= 1.1], [cmocka_summary=yes],
    [cmocka_summary="skipped: no cmocka"])
AM_CONDITIONAL([HAVE_CMOCKA], [test "$cmocka_summary" = yes])
])
